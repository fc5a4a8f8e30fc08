// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent over a model of cgroup files, through random histories: owners who write, groups that come and go, agents
//! that end, are started again and are killed at any write. No value may be in a file that neither its owner wrote nor the
//! policy allows, and in the end every file says what its owner last wrote.
use plimsoll_agent::{restore, Agent, Events, File, Files, Journal, Limits, Result, Settings, Store};
use plimsoll_live::KnobValues;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const HISTORIES: u64 = 1_000;
const STEPS: usize = 60;
const MS: u64 = 1_000_000;
const CPUS: u32 = 4;

#[derive(Clone)]
struct Group {
    id: u64,
    now: Limits,
    owner: Limits,
    weight: Weight,
    owners_weight: u64,
    knobs: KnobValues,
    usage_us: u64,
}

/// cpu.idle and cpu.weight.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Weight {
    Idle,
    Of(u64),
}

#[derive(Default)]
struct Machine {
    groups: BTreeMap<PathBuf, Group>,
    next_id: u64,
    events: BTreeSet<(PathBuf, File)>,
    marked: Vec<PathBuf>,
    tried: Vec<(PathBuf, File)>,
    tree: Vec<PathBuf>,
    busy_us: u64,
    journal: String,
    /// Changes until the agent is killed, and whether the one in which it is is still made.
    dies: Option<(u32, bool)>,
    /// Changes of the agent's.
    writes: u64,
    kills: u64,
    broken: Vec<String>,
}

impl Machine {
    /// One more change, of a file or the journal. `Err`: the agent is dead; true: it died after the change.
    fn alive(&mut self) -> std::result::Result<(), bool> {
        match &mut self.dies {
            None => Ok(()),
            Some((0, after)) => Err(std::mem::take(after)),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn write(&mut self, path: &Path, file: File, value: &str) -> io::Result<()> {
        let Some(group) = self.groups.get_mut(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if matches!(file, File::Idle | File::Weight) {
            // As Linux has them.
            group.weight = match (file, value, group.weight) {
                (File::Idle, "1", _) => Weight::Idle,
                (File::Idle, "0", Weight::Idle) => Weight::Of(100),
                (File::Idle, "0", weight) => weight,
                (File::Weight, _, Weight::Of(_)) => Weight::Of(value.parse().unwrap()),
                _ => return Err(io::Error::from_raw_os_error(22)),
            };
            self.events.insert((path.into(), file));
            return Ok(());
        }
        let (max, burst) = (group.now.text(File::Max).unwrap(), group.now.text(File::Burst));
        let (max, burst) = match file {
            File::Max => (value.to_string(), burst),
            _ => (max, Some(value.to_string())),
        };
        let to = Limits::parse(&max, burst.as_deref()).expect("the agent writes what the kernel reads");
        // What Linux refuses.
        let too_low = to
            .quota_us
            .is_some_and(|quota_us| quota_us < 1_000 || to.burst_us > Some(quota_us));
        if too_low {
            return Err(io::Error::from_raw_os_error(22));
        }
        group.now = to;
        self.events.insert((path.into(), file));
        Ok(())
    }

    /// A value that the agent has just written is one that the owner's and the policy allow.
    fn check(&mut self, path: &Path, file: File, has_headroom: bool) {
        let Group {
            now,
            owner,
            knobs,
            weight,
            owners_weight,
            ..
        } = &self.groups[path];
        let burst_us = knobs.burst_us.unwrap_or(0);
        let quota = match (now.quota_us, owner.quota_us) {
            (now, owner) if now == owner => true,
            // Under headroom a side group may get any less.
            (Some(now), None) => has_headroom && now >= 1_000,
            (Some(now), Some(owner)) => {
                now <= owner + burst_us && (now >= owner || has_headroom && now >= 1_000)
            }
            (None, Some(_)) => false,
            (None, None) => true,
        };
        let burst = now.burst_us <= Some(burst_us.max(owner.burst_us.unwrap_or(0)).max(1));
        let holds = match file {
            // Of a side group without a limit of its owner's the period is the agent's, too.
            File::Max if owner.quota_us.is_none() && now.quota_us.is_some() => {
                quota && [owner.period_us, 10_000].contains(&now.period_us)
            }
            File::Max => quota && now.period_us == owner.period_us,
            File::Burst => burst,
            // 100 is the kernel's, for as long as it takes to write the owner's.
            File::Idle => *weight != Weight::Idle || has_headroom,
            File::Weight => *weight == Weight::Of(*owners_weight),
        };
        if !holds {
            let line = format!(
                "{}: {now:?}, {weight:?} where its owner wrote {owner:?}, {owners_weight} and burst is {burst_us}",
                path.display()
            );
            self.broken.push(line);
        }
    }
}

#[derive(Clone)]
struct Model(Rc<RefCell<Machine>>);

fn dead() -> io::Error {
    io::Error::other("killed")
}

impl Files for Model {
    fn groups(&mut self, below: Option<&Path>) -> Vec<PathBuf> {
        let machine = self.0.borrow();
        let is_asked = |path: &&PathBuf| below.is_none_or(|below| path.starts_with(below));
        machine.groups.keys().filter(is_asked).cloned().collect()
    }

    fn id(&self, group: &Path) -> Option<u64> {
        Some(self.0.borrow().groups.get(group)?.id)
    }

    fn read(&self, group: &Path, file: File) -> io::Result<String> {
        let machine = self.0.borrow();
        let found = machine.groups.get(group).ok_or(io::ErrorKind::NotFound)?;
        Ok(match (file, found.weight) {
            (File::Idle, weight) => u8::from(weight == Weight::Idle).to_string(),
            (File::Weight, Weight::Idle) => "0".to_string(),
            (File::Weight, Weight::Of(weight)) => weight.to_string(),
            _ => return found.now.text(file).ok_or(io::ErrorKind::NotFound.into()),
        })
    }

    fn write(&mut self, group: &Path, file: File, value: &str) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        match machine.alive() {
            Ok(()) => {}
            Err(is_made) => {
                if is_made {
                    let _ = machine.write(group, file, value);
                }
                return Err(dead());
            }
        }
        machine.write(group, file, value)?;
        machine.writes += 1;
        let has_headroom = machine
            .groups
            .values()
            .any(|group| group.knobs.headroom_percent.is_some());
        machine.check(group, file, has_headroom);
        if matches!(file, File::Max | File::Weight) {
            machine.tried.push((group.into(), file));
        }
        Ok(())
    }

    fn counted(&self, group: &Path) -> HashMap<String, u64> {
        let machine = self.0.borrow();
        let usage_us = machine.groups.get(group).map(|group| group.usage_us);
        usage_us
            .map(|usage_us| ("usage_usec".to_string(), usage_us))
            .into_iter()
            .collect()
    }

    fn knobs(&self, group: &Path) -> Result<KnobValues> {
        Ok(self
            .0
            .borrow()
            .groups
            .get(group)
            .map(|group| group.knobs)
            .unwrap_or_default())
    }

    fn events(&mut self) -> Events {
        let mut machine = self.0.borrow_mut();
        Events {
            tree: std::mem::take(&mut machine.tree),
            marked: std::mem::take(&mut machine.marked),
            written: std::mem::take(&mut machine.events),
            tried: std::mem::take(&mut machine.tried),
            all: false,
            blind: false,
        }
    }

    fn busy(&mut self) -> Option<(u64, u32)> {
        Some((self.0.borrow().busy_us, CPUS))
    }

    fn shown<'a>(&self, group: &'a Path) -> &'a Path {
        group
    }

    fn at(&self, shown: &Path) -> PathBuf {
        shown.into()
    }
}

impl Store for Model {
    fn read(&mut self) -> io::Result<String> {
        Ok(self.0.borrow().journal.clone())
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        match machine.alive() {
            Ok(()) => machine.journal.push_str(line),
            Err(whole) => {
                // A line may be torn.
                let length = if whole { line.len() } else { line.len() / 2 };
                machine.journal.push_str(&line[..length]);
                return Err(dead());
            }
        }
        Ok(())
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        machine.alive().map_err(|_| dead())?;
        machine.journal = text.into();
        Ok(())
    }

    fn place(&self) -> String {
        "the model's journal".into()
    }
}

/// Limits as owners write them: round numbers, which no quota of the agent's is.
fn owners(random: &mut Pcg64Mcg) -> Limits {
    let quota_us = random
        .random_bool(0.8)
        .then(|| random.random_range(1..40) * 5_000);
    let most_us = quota_us.unwrap_or(50_000);
    Limits {
        quota_us,
        period_us: [50_000, 100_000, 200_000][random.random_range(0..3)],
        burst_us: Some(if random.random_bool(0.3) {
            random.random_range(0..=most_us / 1_000) * 1_000
        } else {
            0
        }),
    }
}

fn knobs(random: &mut Pcg64Mcg) -> KnobValues {
    KnobValues {
        headroom_percent: random.random_bool(0.1).then(|| random.random_range(1..=100)),
        tolerance_us: None,
        burst_us: random
            .random_bool(0.7)
            .then(|| random.random_range(0..300) * 1_000),
        onset_percent: random.random_bool(0.3).then(|| random.random_range(0..=100)),
    }
}

/// The owner writes both files, in an order that the kernel takes as they are now. It tries again where the agent's
/// burst is in its way.
fn owner_writes(machine: &mut Machine, path: &Path, to: Limits) -> bool {
    let order = machine.groups[path].now.order(&to);
    for file in order {
        let text = to.text(file).unwrap();
        if machine.write(path, file, &text).is_err() {
            machine.tried.push((path.into(), file));
            return false;
        }
        let group = machine.groups.get_mut(path).unwrap();
        match file {
            File::Max => (group.owner.quota_us, group.owner.period_us) = (to.quota_us, to.period_us),
            _ => group.owner.burst_us = to.burst_us,
        }
    }
    true
}

/// The owner writes a weight, as runc does or, of a group that is not idle by then, as systemd.
fn owner_weighs(machine: &mut Machine, path: &Path, random: &mut Pcg64Mcg) {
    // Not 100, which the kernel writes, too.
    let weight = random.random_range(1..100);
    if random.random() {
        machine.write(path, File::Idle, "0").unwrap();
    }
    machine.tried.push((path.into(), File::Weight));
    if machine.write(path, File::Weight, &weight.to_string()).is_ok() {
        machine.groups.get_mut(path).unwrap().owners_weight = weight;
    }
}

fn path_of(random: &mut Pcg64Mcg) -> PathBuf {
    ["/a", "/a/b", "/a/b/c", "/d", "/e"][random.random_range(0..5)].into()
}

fn start(model: &Model) -> Option<Agent<Model, Model>> {
    let mut journal = Journal::open(model.clone(), "boot").ok()?;
    restore(&mut model.clone(), &mut journal).ok()?;
    if model.0.borrow().dies.is_some_and(|(left, _)| left == 0) {
        return None;
    }
    Some(Agent::new(model.clone(), journal, Settings::default(), false))
}

fn history(seed: u64) -> (u64, u64) {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let model = Model(Rc::default());
    let mut agent = None;
    let mut now_ns = 1_000 * MS;
    for _ in 0..STEPS {
        let path = path_of(random);
        {
            let mut machine = model.0.borrow_mut();
            let machine = &mut *machine;
            match random.random_range(0..10) {
                0 if !machine.groups.contains_key(&path) => {
                    machine.next_id += 1;
                    let limits = owners(random);
                    let weight = [20, 100, 300][random.random_range(0..3)];
                    let group = Group {
                        id: machine.next_id,
                        now: limits,
                        owner: limits,
                        weight: Weight::Of(weight),
                        owners_weight: weight,
                        knobs: knobs(random),
                        usage_us: 0,
                    };
                    machine.tree.push(path.clone());
                    machine.groups.insert(path, group);
                }
                1 if machine.groups.contains_key(&path) && random.random_bool(0.3) => {
                    machine.groups.retain(|other, _| !other.starts_with(&path));
                    machine.tree.push(path);
                }
                2 if machine.groups.contains_key(&path) && random.random_bool(0.3) => {
                    owner_weighs(machine, &path, random);
                }
                2 | 3 if machine.groups.contains_key(&path) => {
                    owner_writes(machine, &path, owners(random));
                }
                4 if machine.groups.contains_key(&path) => {
                    machine.groups.get_mut(&path).unwrap().knobs = knobs(random);
                    machine.marked.push(path);
                }
                5 if agent.is_some() && random.random_bool(0.5) => {
                    machine.dies = Some((random.random_range(0..4), random.random()));
                }
                6 if agent.is_some() && random.random_bool(0.2) => machine.dies = Some((0, false)),
                _ => {}
            }
            let passed_ms = random.random_range(1..300);
            now_ns += passed_ms * MS;
            machine.busy_us += random.random_range(0..=passed_ms * 1_000 * u64::from(CPUS));
            for group in machine.groups.values_mut() {
                group.usage_us += random.random_range(0..=passed_ms * 1_000);
            }
        }
        agent = match agent.take() {
            None if random.random_bool(0.5) => start(&model),
            Some(ending) if random.random_bool(0.05) => {
                let _ = ending.end();
                None
            }
            other => other,
        };
        if let Some(running) = &mut agent {
            let _ = running.step(now_ns);
        }
        let mut machine = model.0.borrow_mut();
        if machine.dies.is_some_and(|(left, _)| left == 0) {
            agent = None;
            machine.dies = None;
            machine.kills += 1;
        }
        assert!(machine.broken.is_empty(), "seed {seed}: {:?}", machine.broken);
    }
    drop(agent);
    model.0.borrow_mut().dies = None;
    start(&model).unwrap();
    let machine = model.0.borrow();
    for (path, group) in &machine.groups {
        // Of an owner's quota below its burst, which the kernel takes only while the agent holds the burst, the quota
        // counts.
        let mut owner = group.owner;
        if let (Some(quota_us), Some(burst_us)) = (owner.quota_us, owner.burst_us) {
            owner.burst_us = Some(burst_us.min(quota_us));
        }
        assert_eq!(group.now, owner, "seed {seed}: {}", path.display());
        let weight = Weight::Of(group.owners_weight);
        assert_eq!(group.weight, weight, "seed {seed}: {}", path.display());
    }
    (machine.writes, machine.kills)
}

#[test]
fn no_history_leaves_a_value_that_neither_owner_nor_policy_asked_for() {
    let (mut writes, mut kills) = (0, 0);
    for seed in 0..HISTORIES {
        let (w, k) = history(seed);
        writes += w;
        kills += k;
    }
    // The histories are about something.
    assert!(
        writes > 10 * HISTORIES && kills > HISTORIES,
        "{writes} writes, {kills} kills"
    );
}
