// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll status`: what the running scheduler has counted.
use crate::exit::{Failure, Outcome, Result};
use crate::openmetrics::{exposition, Format};
use plimsoll_agent::Containers;
use plimsoll_live::{ask, cgroup_id, shown, GroupStatus, Request, Status};
use plimsoll_report::Table;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Show the counters of the running scheduler or agent, for every cgroup, or for one and those below it
///
/// Prints the fields of cpu.stat that stand still under a BPF scheduler, under the same names, and more.
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the cgroup, such as /sys/fs/cgroup/system.slice
    cgroup: Option<PathBuf>,

    /// Print JSON: one object on one line
    #[arg(long)]
    json: bool,

    /// Print again every second, until interrupted
    #[arg(long)]
    watch: bool,

    /// Print exactly the format of the kernel's cpu.stat; needs a cgroup
    #[arg(long, requires = "cgroup", conflicts_with_all = ["json", "watch"])]
    cpu_stat: bool,

    /// Print Prometheus metrics under cAdvisor's names, for a textfile collector
    #[arg(long, conflicts_with_all = ["json", "watch", "cpu_stat"])]
    prometheus: bool,
}

pub fn run(args: &Args) -> Result {
    // "-" behind --json means the standard output: it is not a cgroup.
    let cgroup = match args.cgroup.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => Some(
            path.canonicalize()
                .map_err(|error| Failure::file("find it", path, &error))?,
        ),
        None => None,
    };
    if let Some(path) = &cgroup {
        cgroup_id(path)?;
    }
    loop {
        let status = ask(&Request::Status {
            cgroup: cgroup.clone(),
        })?
        .ok_or_else(|| Failure::Machine("the scheduler sent no status".into()))?;
        if let Some(path) = &cgroup {
            let group = group_of(&status, path)?;
            if args.cpu_stat {
                let file = path.join("cpu.stat");
                let kernels = std::fs::read_to_string(&file)
                    .map_err(|error| Failure::file("read it", &file, &error))?;
                out!("{}", group.cpu_stat(&kernels));
                return Ok(Outcome::Done);
            }
        }
        let text = if args.prometheus {
            exposition(&status, &mut Containers::under(Path::new("/")), Format::Text)
        } else if args.json {
            serde_json::to_string(&status).expect("numbers and strings") + "\n"
        } else {
            tables(&status)
        };
        let heard = crate::out::print(format_args!("{text}"));
        if !args.watch || !heard {
            return Ok(Outcome::Done);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The group at `path`: without it there is nothing to show, and nothing shown would read as nothing used.
fn group_of<'a>(status: &'a Status, path: &Path) -> std::result::Result<&'a GroupStatus, Failure> {
    let name = shown(path);
    let found = status.groups.iter().find(|group| group.cgroup == name);
    found.ok_or_else(|| {
        Failure::Input(format!(
            "{name}: the scheduler has no group for this cgroup: it has no cpu controller, or is scheduled as part of one above it"
        ))
    })
}

/// A figure of a group, as a column shows it.
type Column = fn(&GroupStatus) -> u64;

fn tables(status: &Status) -> String {
    let limit = |value: Option<u64>| value.map_or_else(|| "max".into(), |value| value.to_string());
    let columns: [(&str, Column); 10] = [
        ("usage_usec", |g| g.usage_usec),
        ("nr_periods", |g| g.nr_periods),
        ("nr_throttled", |g| g.nr_throttled),
        ("throttled_usec", |g| g.throttled_usec),
        ("nr_bursts", |g| g.nr_bursts),
        ("burst_usec", |g| g.burst_usec),
        ("run_delay_usec", |g| g.run_delay_usec),
        ("parked", |g| g.parked_tasks.into()),
        ("granted", |g| g.nr_grants),
        ("steals", |g| g.nr_steals),
    ];
    let mut header = vec!["cgroup", "quota_us", "period_us", "current_bw_usec"];
    header.extend(columns.iter().map(|(name, _)| name));
    header.push("headroom");
    let mut groups = Table::new(&header);
    for group in &status.groups {
        let mut row = vec![
            group.cgroup.clone(),
            limit(group.quota_us),
            group.period_us.to_string(),
            group
                .current_bw_usec
                .map_or_else(|| "-".into(), |value| value.to_string()),
        ];
        row.extend(columns.iter().map(|(_, value)| value(group).to_string()));
        row.push(match group.headroom_percent {
            0 => group.headroom.clone(),
            percent => format!("{} {percent}%", group.headroom),
        });
        groups.row(row);
    }
    let mut cpus = Table::new(&[
        "cpu",
        "switches",
        "wakeups",
        "preempts",
        "steals",
        "searches",
        "find_usec",
        "pulls",
        "idle_usec",
    ]);
    // A machine may be able to take many more CPUs than it has.
    for cpu in status.cpus.iter().filter(|cpu| cpu.online) {
        let numbers = [
            cpu.cpu.into(),
            cpu.nr_switches,
            cpu.nr_wakeups,
            cpu.nr_preempts,
            cpu.nr_steals,
            cpu.nr_searches,
            cpu.find_usec,
            cpu.nr_pulls,
            cpu.idle_usec,
        ];
        cpus.row(numbers.iter().map(u64::to_string).collect());
    }
    let mut text = format!("{groups}\n{cpus}");
    if let Some(budget_us) = status.side_budget_us {
        text.push_str(&format!(
            "\nheadroom {}%: in the last window the side used {} us and the machine was idle for {} us; side budget now {budget_us} us\n",
            status.headroom_percent, status.side_used_us, status.idle_us
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::tests::two;

    #[test]
    fn a_cgroup_that_the_scheduler_does_not_know_is_refused() {
        let (_, status) = two();
        let known = status.groups[1].cgroup.clone();
        let found = group_of(&status, Path::new(&known));
        assert_eq!(found.map(|group| &group.cgroup).ok(), Some(&known));
        for unknown in [format!("{known}/below"), "/proc".into()] {
            let Err(Failure::Input(message)) = group_of(&status, Path::new(&unknown)) else {
                panic!("{unknown}");
            };
            assert!(message.contains(&unknown), "{message}");
        }
    }
}
