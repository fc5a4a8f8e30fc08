// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Headroom beside a hundred side groups that run: how often their files are read, and when at once.
use crate::made_up::Memory;
use plimsoll_agent::{Agent, Events, File, Files, Journal, Result, Settings};
use plimsoll_live::KnobValues;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const WINDOW_NS: u64 = 200_000_000;
const WINDOW_US: u64 = WINDOW_NS / 1000;
const CPUS: u32 = 10;
const NR_SIDE: u64 = 100;

/// `/main`, and `/side0` and so on.
#[derive(Default)]
struct Machine {
    max: BTreeMap<PathBuf, String>,
    used_us: BTreeMap<PathBuf, u64>,
    /// Of side groups.
    nr_reads: Cell<u64>,
    /// Whose cpu.max was written in this window.
    written: Vec<PathBuf>,
}

#[derive(Clone, Default)]
struct Model(Rc<RefCell<Machine>>);

impl Model {
    fn made() -> Model {
        let model = Model::default();
        let paths = (0..NR_SIDE).map(|i| format!("/side{i}")).chain(["/main".into()]);
        for path in paths {
            let mut machine = model.0.borrow_mut();
            machine.max.insert(path.clone().into(), "max 100000".into());
            machine.used_us.insert(path.into(), 0);
        }
        model
    }

    /// Whose cpu.max was written since it was last asked.
    fn written(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    /// Of a side group, in a window.
    fn part_us(max: &str) -> u64 {
        let (quota, period) = max.split_once(' ').unwrap();
        let quota_us: u64 = quota.parse().expect("a side group has a quota");
        quota_us * WINDOW_US / period.parse::<u64>().unwrap()
    }

    fn use_us(&self, path: String, used_us: u64) {
        *self.0.borrow_mut().used_us.get_mut(Path::new(&path)).unwrap() += used_us;
    }

    /// What all side groups may use in a window.
    fn allowed_us(&self) -> u64 {
        let machine = self.0.borrow();
        let sides = machine
            .max
            .iter()
            .filter(|(path, _)| **path != *Path::new("/main"));
        sides.map(|(_, max)| Self::part_us(max)).sum()
    }
}

impl Files for Model {
    fn groups(&mut self, _: Option<&Path>) -> Vec<PathBuf> {
        self.0.borrow().max.keys().cloned().collect()
    }
    fn id(&self, group: &Path) -> Option<u64> {
        let at = self.0.borrow().max.keys().position(|path| path == group);
        at.map(|at| at as u64)
    }
    fn read(&self, group: &Path, file: File) -> io::Result<String> {
        match file {
            File::Max => Ok(self.0.borrow().max[group].clone()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
    fn write(&mut self, group: &Path, _: File, value: &str) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        machine.max.insert(group.into(), value.into());
        machine.written.push(group.into());
        Ok(())
    }
    fn usage_us(&self, group: &Path) -> Option<u64> {
        let machine = self.0.borrow();
        if group != Path::new("/main") {
            machine.nr_reads.set(machine.nr_reads.get() + 1);
        }
        machine.used_us.get(group).copied()
    }
    fn counted(&self, _: &Path) -> HashMap<String, u64> {
        HashMap::new()
    }
    fn knobs(&self, group: &Path) -> Result<KnobValues> {
        Ok(KnobValues {
            headroom_percent: (group == Path::new("/main")).then_some(30),
            ..Default::default()
        })
    }
    fn events(&mut self) -> Events {
        Events::default()
    }
    fn busy(&mut self) -> Option<(u64, u32)> {
        Some((self.0.borrow().used_us.values().sum(), CPUS))
    }
    fn shown<'a>(&self, group: &'a Path) -> &'a Path {
        group
    }
    fn at(&self, shown: &Path) -> PathBuf {
        shown.into()
    }
}

/// A window in which main uses so many percent of the machine, and each side group between 0.2 and 0.6%: 40% all together.
fn window(model: &Model, agent: &mut Agent<Model, Memory>, nr: u64, main_percent: u64) {
    let percent_us = WINDOW_US * u64::from(CPUS) / 100;
    model.use_us("/main".into(), main_percent * percent_us);
    for i in 0..NR_SIDE {
        let part = (i * 7 + nr * 3) % 5;
        model.use_us(format!("/side{i}"), (20 + part * 10) * percent_us / 100);
    }
    agent.step((nr + 1) * WINDOW_NS).unwrap();
}

#[test]
fn many_side_groups_are_read_now_and_then_and_at_once_where_main_lacks_its_headroom() {
    let model = Model::made();
    let journal = Journal::open(Memory::default(), "boot").unwrap();
    let mut agent = Agent::new(model.clone(), journal, Settings::default(), false);
    // Main changes by 2% of the machine all the time, and has its headroom.
    for nr in 0..10 {
        window(&model, &mut agent, nr, 10 + nr % 2 * 2);
    }
    let before = model.0.borrow().nr_reads.get();
    for nr in 10..110 {
        window(&model, &mut agent, nr, 10 + nr % 2 * 2);
    }
    let reads = model.0.borrow().nr_reads.get() - before;
    assert!(
        (NR_SIDE..=100 * 10).contains(&reads),
        "{reads} reads in 100 windows"
    );
    // They use 40% of the machine, and main leaves them 20.
    window(&model, &mut agent, 110, 50);
    let budget_us = WINDOW_US * u64::from(CPUS) * 20 / 100;
    let allowed_us = model.allowed_us();
    assert!(
        allowed_us.abs_diff(budget_us) < budget_us / 20,
        "{allowed_us} us for {budget_us}"
    );
}

/// Linux refills a quota as it is written, and forgets what the group owes: up to a tick. Written for that, parts would be written for
/// ever.
#[test]
fn what_a_write_forgives_is_no_reason_to_write_again() {
    const OWED_US: u64 = 2_000;
    let model = Model::made();
    let journal = Journal::open(Memory::default(), "boot").unwrap();
    let mut agent = Agent::new(model.clone(), journal, Settings::default(), false);
    let percent_us = WINDOW_US * u64::from(CPUS) / 100;
    let mut nr_written = 0;
    for nr in 0..120 {
        let written = model.written();
        for i in 0..NR_SIDE {
            let path = PathBuf::from(format!("/side{i}"));
            let max = model.0.borrow().max[&path].clone();
            let part_us = match max.starts_with("max") {
                true => percent_us / 2,
                false => Model::part_us(&max),
            };
            let forgiven_us = if written.contains(&path) { OWED_US } else { 0 };
            model.use_us(format!("/side{i}"), part_us + forgiven_us);
        }
        // Main is late beside them, and has the rest afterwards.
        let late = if written.len() as u64 > NR_SIDE / 2 { 2 } else { 0 };
        model.use_us(
            "/main".into(),
            (if nr < 20 { 10 } else { 40 } + late) * percent_us,
        );
        agent.step((nr + 1) * WINDOW_NS).unwrap();
        if nr >= 40 {
            nr_written += model.0.borrow().written.len() as u64;
        }
    }
    let budget_us = 30 * percent_us;
    let allowed_us = model.allowed_us();
    assert!(
        allowed_us.abs_diff(budget_us) < budget_us / 20,
        "{allowed_us} us for {budget_us}"
    );
    assert!(nr_written <= NR_SIDE, "{nr_written} writes in 80 windows");
}
