// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small language for traces in tests, one event a line: `TIME CPU WHAT`, times in ns.
//!
//! `switch PREV STATE NEXT`, `waking TID WAKER CONTEXT`, `wakeup TID WAKER TARGET_CPU`,
//! `placed TID TARGET_CPU`, `migrate TID TARGET_CPU`, `owed TID NS NS`,
//! `fork PARENT CHILD`, `exit TID`, `move TID GROUP`, `sample GROUP USAGE_NS NR_PERIODS`,
//! `request TID begin|end`, `socket TID CONNECTION OP BYTES`, `others GROUP RUN_NS STATE`.
#![allow(dead_code)] // each test program uses its own part
use plimsoll_trace::*;

pub fn events(text: &str) -> Vec<Event> {
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(event)
        .collect()
}

fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_whitespace().collect();
    let int = |i: usize| -> u32 { words[i].parse().unwrap_or_else(|_| panic!("{line}: word {i}")) };
    let what = match words[2] {
        "switch" => What::Switch {
            prev: int(3),
            prev_state: State::from_letter(words[4]).unwrap(),
            next: int(5),
        },
        "waking" => What::Waking {
            tid: int(3),
            waker: int(4),
            context: Context::ALL.into_iter().find(|c| c.name() == words[5]).unwrap(),
        },
        "wakeup" => What::Wakeup {
            tid: int(3),
            waker: int(4),
            target_cpu: int(5),
        },
        "placed" => What::Placed {
            tid: int(3),
            target_cpu: int(4),
        },
        "migrate" => What::Migrate {
            tid: int(3),
            target_cpu: int(4),
        },
        "owed" => What::Owed {
            tid: int(3),
            owed: Owed {
                own_ns: words[4].parse().unwrap(),
                beside_ns: words[5].parse().unwrap(),
            },
        },
        "fork" => What::Fork {
            parent: int(3),
            child: int(4),
        },
        "exit" => What::Exit { tid: int(3) },
        "move" => What::Move {
            tid: int(3),
            group: int(4),
        },
        "sample" => What::Sample {
            group: int(3),
            stat: Box::new(CpuStat {
                usage_ns: Some(int(4) as u64),
                nr_periods: Some(int(5) as u64),
                ..Default::default()
            }),
        },
        "request" => What::Request {
            tid: int(3),
            begin: words[4] == "begin",
        },
        "socket" => What::Socket {
            tid: int(3),
            connection: words[4].parse().unwrap(),
            op: SocketOp::ALL.into_iter().find(|o| o.name() == words[5]).unwrap(),
            bytes: int(6),
        },
        "others" => What::Others {
            group: Some(int(3)),
            run_ns: int(4) as u64,
            state: State::from_letter(words[5]).unwrap(),
        },
        other => panic!("{line}: unknown event {other}"),
    };
    Event {
        ts_ns: words[0].parse().unwrap(),
        cpu: int(1),
        what,
    }
}

/// A header for 0..1000 ns on two CPUs with threads `tid:name:group` and groups `/`, `/a`, `/b`.
pub fn header(threads: &str) -> Header {
    let group = |path: &str| Group {
        path: path.into(),
        ..Default::default()
    };
    Header {
        source: "test".into(),
        clock: Clock {
            name: "CLOCK_MONOTONIC".into(),
            start_ns: 0,
            end_ns: 1000,
            wall_start_ns: Some(1_700_000_000_000_000_000),
        },
        machine: Machine {
            cpus: (0..2)
                .map(|cpu| Cpu {
                    cpu,
                    ..Default::default()
                })
                .collect(),
            kernel: Some("6.0-test".into()),
            hz: Some(250),
            model: None,
            cgroup_version: Some(2),
        },
        groups: vec![group("/"), group("/a"), group("/b")],
        threads: threads
            .split_whitespace()
            .map(|t| {
                let words: Vec<&str> = t.split(':').collect();
                Thread {
                    tid: words[0].parse().unwrap(),
                    tgid: None,
                    comm: words[1].into(),
                    group: words.get(2).map(|g| g.parse().unwrap()),
                    from_ns: 0,
                }
            })
            .collect(),
        ..Default::default()
    }
}

pub fn write(path: &std::path::Path, header: &Header, events: &[Event]) {
    let mut writer = TraceWriter::create(path).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(header).unwrap();
}

pub fn read(path: &std::path::Path) -> Result<(Header, Vec<Event>), TraceError> {
    let mut reader = TraceReader::open(path)?;
    let mut events = Vec::new();
    while reader.read_group(&mut events)? {}
    Ok((reader.into_header(), events))
}

/// One line a burst, as short as it can be read.
pub fn render(timeline: &Timeline) -> String {
    let mut out = String::new();
    for (ix, thread) in timeline.threads.iter().enumerate() {
        out += &format!("#{ix} {} {}\n", thread.tid, thread.comm);
        for (i, b) in thread.bursts.iter().enumerate() {
            let runs: Vec<String> = thread
                .runs_of(b)
                .iter()
                .map(|r| format!("{}..{}@{}", r.start_ns, r.end_ns, r.cpu as i32))
                .collect();
            let wakes: Vec<String> = thread.wakes[b.wakes.start as usize..b.wakes.end as usize]
                .iter()
                .map(|w| format!("#{}.{} at {}", w.thread, w.burst, w.at_work_ns))
                .collect();
            let cause = match b.cause {
                Cause::Thread { thread, burst, .. } => format!("woken by #{thread}.{burst}"),
                Cause::Fork { thread, burst, .. } => format!("forked by #{thread}.{burst}"),
                Cause::Outside { waker } => format!("woken by outside {waker}"),
                other => format!("{other:?}").to_lowercase(),
            };
            let end = match b.end {
                End::Blocked {
                    uninterruptible: false,
                } => "blocks",
                End::Blocked {
                    uninterruptible: true,
                } => "blocks (D)",
                End::Exit => "exits",
                End::Cut => "cut",
            };
            out += &format!(
                "  .{i} {}..{} {cause}; work {} wait {}; {end}; runs [{}]",
                b.woken_ns,
                b.end_ns,
                b.work_ns,
                b.wait_ns(),
                runs.join(" ")
            );
            if !wakes.is_empty() {
                out += &format!("; wakes {}", wakes.join(", "));
            }
            if let Some(group) = b.group {
                out += &format!("; group {group}");
            }
            out += "\n";
        }
    }
    for warning in &timeline.quality.warnings {
        out += &format!("! {warning}\n");
    }
    out
}
