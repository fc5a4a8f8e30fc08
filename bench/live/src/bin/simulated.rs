// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Live against simulated, with wakers: the same workloads on a real kernel in virtual time and in the simulator.
//!
//! Where woken tasks went is compared by kind (enum pl_place of policy/place.h), and how long things took. What the emulated
//! machine's own paths cost, a side of a round trip, a message, a fork, is taken from the first guest, of one CPU (`Cost`);
//! nothing else is fitted. All virtual CPUs share one stream of instructions, so such a path takes as many times longer as
//! there are busy ones.
use anyhow::{bail, Context as _, Result};
use clap::Parser;
use plimsoll_scenario::{find, machine, read, MachineFile, Tree};
use plimsoll_sim::{
    ChannelSpec, Config, Context, GroupId, GroupSpec, LatencyId, Machine, Numbering, Results, Simulation,
    Step, TaskSpec, Topology,
};
use plimsoll_validate::rebuild::OWN;
use plimsoll_vm::{find_qemu, obtain, run, Cache, Guest, Kernel, Program, Qemu, Wanted};
use plimsoll_workload::{Duty, Place};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare the live scheduler with the simulator where tasks wake each other
#[derive(Parser)]
#[command(after_help = "Exit codes: 0 every figure held, 1 one missed, 2 bad usage, 3 no guest")]
struct Args {
    /// Kernel: newest, or a series such as 7.2
    #[arg(long, default_value = "newest")]
    kernel: Wanted,

    /// Folder with the guest's programs, as `make guest` leaves them
    #[arg(long, default_value = "target/guest")]
    programs: PathBuf,

    /// The static plimsoll binary
    #[arg(long, default_value = "dist/plimsoll")]
    plimsoll: PathBuf,

    /// What the guests printed in an earlier run: nothing is booted
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Keep what the guests printed
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    raw: Option<PathBuf>,
}

const COUNTS_PERCENT: f64 = 10.0;
/// A kind that fewer wake-ups than this share of all went to is not compared by itself: the system's own are among them.
const COUNTS_LEAST_PERCENT: f64 = 2.0;
const LATENCIES_PERCENT: f64 = 20.0;
const KINDS: [&str; 6] = ["waker", "kept", "cache", "elsewhere", "idle_work", "behind"];

const TRIPS: u64 = 10_000;
const WARM_UP_TRIPS: u64 = 1_000;
const LOOPS: u64 = 100;
const PEERS: u32 = 20;
const FORKS: u64 = 1000;
const FORK_EVERY_NS: u64 = 2_000_000;
const FORK_WORK_NS: u64 = 500_000;

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn compare(args: &Args) -> Result<bool> {
    let text = match &args.from {
        Some(path) => std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => measure(args)?,
    };
    if let Some(path) = &args.raw {
        std::fs::write(path, &text).with_context(|| path.display().to_string())?;
    }
    let lines = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .collect::<Result<Vec<Value>, _>>()
        .context("what the guests printed")?;
    let mut lines = lines.as_slice();
    let mut model = Model::load()?;
    let mut held = true;
    println!("{:<44} {:>10} {:>10} {:>9}", "", "live", "simulated", "off");
    for cpus in GUESTS {
        let cases: Vec<_> = cases().into_iter().filter(|case| case.cpus == cpus).collect();
        let live = measured(&mut lines, cases.len()).context("what the guests printed is cut off")?;
        for (case, live) in cases.iter().zip(&live) {
            model.learn(case, live);
            println!("{} CPU{}: {}", cpus, if cpus > 1 { "s" } else { "" }, case.name);
            held &= print(case, live, &model.run(case));
        }
    }
    Ok(held)
}

fn measure(args: &Args) -> Result<String> {
    let mut programs = vec![Program {
        path: args.plimsoll.clone(),
        name: "plimsoll".into(),
    }];
    for name in ["duty", "roundtrip", "hackbench", "forks"] {
        programs.push(Program::of(args.programs.join(name))?);
    }
    for program in &programs {
        if !program.path.is_file() {
            bail!("{} is missing: run `make static guest`", program.path.display());
        }
    }
    let cache = Cache::open()?;
    let kernel = obtain(&cache, &args.kernel, false, &|text| eprintln!("{text}"))?;
    let qemu = find_qemu(&cache, true, &|text| eprintln!("{text}"))?;
    println!(
        "Linux {}, QEMU {}.{} in virtual time",
        kernel.release, qemu.version.0, qemu.version.1
    );
    let mut text = String::new();
    for cpus in GUESTS {
        let mut script = String::from("plimsoll status --json; sleep 3; plimsoll status --json\n");
        for case in cases().iter().filter(|case| case.cpus == cpus) {
            script += &format!("{}; plimsoll status --json\n", case.script);
        }
        text += &boot(&kernel, &qemu, &programs, &cpus.to_string(), &script)?;
    }
    Ok(text)
}

fn boot(kernel: &Kernel, qemu: &Qemu, programs: &[Program], cpus: &str, script: &str) -> Result<String> {
    let guest = Guest {
        kernel,
        cpus,
        possible_cpus: None,
        memory: "1G",
        timing: true,
        programs,
        command: &["sh", "-ec", script].map(String::from),
        scheduler: true,
        forward: &[],
        drivers: &[],
        timeout: Some(std::time::Duration::from_secs(1800)),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = run(&guest, qemu, &mut out, &mut err)?;
    if ended.code != 0 {
        bail!(
            "the guest's exit code is {}: {}",
            ended.code,
            String::from_utf8_lossy(&err)
        );
    }
    Ok(String::from_utf8(out)?)
}

/// What a case came to: latencies and all of its time in us, and where the woken tasks went.
#[derive(Default)]
struct Measured {
    p50_us: f64,
    p99_us: f64,
    time_us: Option<f64>,
    /// CPU time of hackbench's senders.
    senders_us: Option<f64>,
    /// CPU time for each process, its end included.
    used_us: Option<f64>,
    placed: [f64; KINDS.len()],
}

/// What a guest printed of so many cases; it is taken off the front.
fn measured(lines: &mut &[Value], cases: usize) -> Option<Vec<Measured>> {
    let (now, rest) = lines.split_at_checked(2 + 2 * cases)?;
    *lines = rest;
    let uptime = |status: &Value| status["uptime_usec"].as_f64();
    // What the system does by itself, for each us.
    let passed_us = uptime(&now[1])? - uptime(&now[0])?;
    let own = placed(&now[0], &now[1])?.map(|count| count / passed_us);
    let of_case = |at: usize| {
        let (before, printed, after) = (&now[at - 1], &now[at], &now[at + 1]);
        let passed_us = uptime(after)? - uptime(before)?;
        let counts = placed(before, after)?;
        Some(Measured {
            placed: std::array::from_fn(|kind| (counts[kind] - own[kind] * passed_us).max(0.0)),
            ..latencies(printed)?
        })
    };
    (0..cases).map(|case| of_case(2 + 2 * case)).collect()
}

fn placed(before: &Value, after: &Value) -> Option<[f64; KINDS.len()]> {
    let sum = |status: &Value, kind: &str| -> Option<f64> {
        status["cpus"]
            .as_array()?
            .iter()
            .map(|cpu| cpu["placed"][kind].as_f64())
            .sum()
    };
    let mut counts = [0.0; KINDS.len()];
    for (count, kind) in counts.iter_mut().zip(KINDS) {
        *count = sum(after, kind)? - sum(before, kind)?;
    }
    Some(counts)
}

fn latencies(printed: &Value) -> Option<Measured> {
    let of = |object: &Value, unit: &str, scale: f64| {
        Some(Measured {
            p50_us: object[format!("p50{unit}")].as_f64()? * scale,
            p99_us: object[format!("p99{unit}")].as_f64()? * scale,
            time_us: printed["time_us"].as_f64(),
            senders_us: printed["senders_us"].as_f64(),
            used_us: printed["used_us"].as_f64(),
            ..Measured::default()
        })
    };
    match printed["program"].as_str()? {
        "duty" => of(&printed["groups"][0]["latency_us"], "", 1.0),
        "forks" => of(printed, "_us", 1.0),
        _ => of(printed, "_ns", 1e-3),
    }
}

/// CPUs of the guests, in turn.
const GUESTS: [u32; 2] = [1, 4];

/// A cost of the emulated machine that a case gives.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// By its p50, which is then not compared, nor its p99.
    Trip,
    /// By its time, and what of that its senders took.
    Message,
    /// By its p50, and what is used beyond that.
    Fork,
}

struct Case {
    cpus: u32,
    name: &'static str,
    script: &'static str,
    build: fn(&Model, &mut Config) -> LatencyId,
    gives: Option<Cost>,
}

const SPINNER: &str =
    "duty --duration-ms 3000 --group spin --spin $(nproc) >/dev/null & sleep 0.5; forks --group forks; wait";
const HACKBENCH: &str = "hackbench --groups 1 --loops 100 --each";

fn cases() -> Vec<Case> {
    let case = |cpus, name, script, build| Case {
        cpus,
        name,
        script,
        build,
        gives: None,
    };
    let gives = |cost, case| Case {
        gives: Some(cost),
        ..case
    };
    vec![
        gives(
            Cost::Trip,
            case(1, "ping-pong over pipes", "roundtrip --each", ping_pong),
        ),
        gives(
            Cost::Message,
            case(1, "hackbench, 1 group, sockets", HACKBENCH, hackbench),
        ),
        case(
            1,
            "service, 4 x 0.5 of 10 ms, beside 2 spinners",
            "duty --duration-ms 5000 --group service --duty 4 --work-us 500 --interval-us 10000 --stagger-us 2500 \
             --group batch --spin 2",
            |model, config| beside(model, config, (4, 500.0, 2500.0), 2, false),
        ),
        gives(
            Cost::Fork,
            case(1, "a process of 500 us each 2 ms, alone", "forks --group forks", |model, config| {
                forks(model, config, false)
            }),
        ),
        case(1, "the same beside a spinner", SPINNER, |model, config| {
            forks(model, config, true)
        }),
        case(4, "ping-pong over pipes", "roundtrip --each", ping_pong),
        case(4, "hackbench, 1 group, sockets", HACKBENCH, hackbench),
        case(
            4,
            "service, 4 x 1 of 10 ms, beside 4 spinners",
            "duty --duration-ms 5000 --group service --duty 4 --work-us 1000 --interval-us 10000 --stagger-us 2500 \
             --group batch --spin 4",
            |model, config| beside(model, config, (4, 1000.0, 2500.0), 4, false),
        ),
        case(
            4,
            "service, 3 x 3 of 10 ms, beside 4 spinners of cpu.idle",
            "duty --duration-ms 5000 --group service2 --duty 3 --work-us 3000 --interval-us 10000 --stagger-us 3333 \
             --group idle --set cpu.idle=1 --spin 4",
            |model, config| beside(model, config, (3, 3000.0, 3333.0), 4, true),
        ),
        case(4, "a process of 500 us each 2 ms, alone", "forks --group forks", |model, config| {
            forks(model, config, false)
        }),
        case(4, "the same beside 4 spinners", SPINNER, |model, config| {
            forks(model, config, true)
        }),
    ]
}

/// The simulated machine, and what its paths cost where one CPU is busy.
struct Model {
    machine: Machine,
    cpus: u32,
    side_us: f64,
    /// Both sides of a message, and its sender's part of that.
    message_us: f64,
    sender_part: f64,
    fork_us: f64,
    /// From the end of a process's work to its own.
    exit_us: f64,
}

impl Model {
    fn load() -> Result<Model> {
        let problems = |problems: plimsoll_scenario::Problems| anyhow::anyhow!("{problems}");
        let found = find::machine("vm", std::path::Path::new(".")).map_err(anyhow::Error::msg)?;
        let tree = Tree::parse(&found.name, &found.text).map_err(problems)?;
        let file: MachineFile = read(&tree).map_err(problems)?;
        Ok(Model {
            machine: machine(&file, &tree, &[]).map_err(problems)?,
            cpus: 1,
            side_us: 1.0,
            message_us: 1.0,
            sender_part: 0.5,
            fork_us: 1.0,
            exit_us: 0.0,
        })
    }

    /// Takes from a measured case the cost that it gives: what it took beyond what the model's machine has of it.
    fn learn(&mut self, case: &Case, live: &Measured) {
        self.cpus = case.cpus;
        let topology = Topology::regular(1, 1, 1, self.cpus, 1, Numbering::SiblingsLast);
        self.machine.topology = topology;
        let Some(cost) = case.gives else { return };
        let bare = self.run(case);
        let messages = f64::from(PEERS * PEERS) * LOOPS as f64;
        let (of, more_us) = match cost {
            Cost::Trip => (&mut self.side_us, (live.p50_us - bare.p50_us) / 2.0),
            Cost::Message => {
                let time_us = live.time_us.unwrap_or_default();
                self.sender_part = live.senders_us.unwrap_or_default() / time_us;
                (
                    &mut self.message_us,
                    (time_us - bare.time_us.unwrap_or_default()) / messages,
                )
            }
            Cost::Fork => {
                self.exit_us = (live.used_us.unwrap_or_default() - live.p50_us).max(0.0);
                (&mut self.fork_us, live.p50_us - bare.p50_us)
            }
        };
        *of = (*of + more_us).max(0.001);
    }

    fn run(&self, case: &Case) -> Measured {
        let mut config = Config::new(self.machine.clone(), 60_000_000_000);
        config.stop_when_done = true;
        let latency = (case.build)(self, &mut config);
        let results = Simulation::new(config)
            .unwrap_or_else(|error| panic!("a case that cannot be simulated: {error}"))
            .run(None)
            .unwrap_or_else(|stuck| panic!("{stuck}"));
        simulated(&results, latency)
    }
}

fn simulated(results: &Results, latency: LatencyId) -> Measured {
    let mut left = latency.0 as usize;
    let histogram = results
        .workloads
        .iter()
        .find_map(|workload| match workload.latencies.get(left) {
            Some(found) => Some(&found.histogram),
            None => {
                left -= workload.latencies.len();
                None
            }
        })
        .expect("the case's own");
    let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let all = results
        .cpus
        .iter()
        .fold(Default::default(), |sum: plimsoll_sim::Placed, cpu| {
            sum.plus(cpu.placed)
        });
    Measured {
        p50_us: us(0.5),
        p99_us: us(0.99),
        time_us: Some(results.end_ns as f64 / 1e3),
        senders_us: None,
        used_us: None,
        placed: [
            all.waker,
            all.kept,
            all.cache,
            all.elsewhere,
            all.idle_work,
            all.behind,
        ]
        .map(|n| n as f64),
    }
}

fn ping_pong(model: &Model, config: &mut Config) -> LatencyId {
    let workload = config.add_workload("ping-pong");
    let latency = config.add_latency(workload, "trip");
    let (there, back) = (config.add_channel(1), config.add_channel(1));
    let work_ns = (model.side_us * 1e3) as u64;
    let mut begun_ns = 0;
    let mut left = WARM_UP_TRIPS + TRIPS;
    let mut stage = 0;
    let client = move |ctx: &mut Context| {
        stage = (stage + 1) % 3;
        match stage {
            1 => {
                if ctx.received().is_some() {
                    left -= 1;
                    ctx.record(latency, ctx.now_ns() - begun_ns);
                }
                begun_ns = ctx.now_ns();
                match left {
                    0 => Step::Exit,
                    _ => Step::Compute { ns: work_ns },
                }
            }
            2 => Step::Send {
                channel: there,
                value: 0,
            },
            _ => Step::Receive { channel: back },
        }
    };
    let mut stage = 0;
    let mut left = WARM_UP_TRIPS + TRIPS;
    let server = move |_: &mut Context| {
        stage = (stage + 1) % 3;
        match stage {
            1 if left == 0 => Step::Exit,
            1 => Step::Receive { channel: there },
            2 => Step::Compute { ns: work_ns },
            _ => {
                left -= 1;
                Step::Send {
                    channel: back,
                    value: 0,
                }
            }
        }
    };
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "server", server));
    config.add_task(TaskSpec::new(GroupId::ROOT, workload, "client", client));
    latency
}

fn hackbench(model: &Model, config: &mut Config) -> LatencyId {
    let shape = plimsoll_workload::Hackbench::default();
    let workload = config.add_workload("hackbench");
    let latency = config.add_latency(workload, "message");
    // All CPUs are busy.
    let both_ns = model.message_us * f64::from(model.cpus) * 1e3;
    let send_ns = (both_ns * model.sender_part) as u64;
    let receive_ns = both_ns as u64 - send_ns;
    let messages = LOOPS * u64::from(PEERS);
    let channels: Vec<_> = (0..PEERS)
        .map(|_| {
            config.add_channel_of(ChannelSpec {
                wake_level: shape.wake_level(),
                ..ChannelSpec::new(shape.capacity())
            })
        })
        .collect();
    for (number, &channel) in channels.iter().enumerate() {
        let mut left = messages;
        let receive = move |ctx: &mut Context| {
            if let Some(sent_ns) = ctx.received() {
                ctx.record(latency, ctx.now_ns() - sent_ns);
                left -= 1;
                return Step::Compute { ns: receive_ns };
            }
            match left {
                0 => Step::Exit,
                _ => Step::Receive { channel },
            }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("receiver-{number}"),
            receive,
        ));
    }
    for number in 0..PEERS {
        let channels = channels.clone();
        let mut sent = 0;
        let mut worked = false;
        let send = move |ctx: &mut Context| {
            worked = !worked;
            match sent {
                sent if sent == messages => Step::Exit,
                _ if worked => Step::Compute { ns: send_ns },
                _ => {
                    sent += 1;
                    Step::Send {
                        channel: channels[(sent - 1) as usize % channels.len()],
                        value: ctx.now_ns(),
                    }
                }
            }
        };
        config.add_task(TaskSpec::new(
            GroupId::ROOT,
            workload,
            format!("sender-{number}"),
            send,
        ));
    }
    latency
}

fn beside(
    model: &Model,
    config: &mut Config,
    (threads, work_us, stagger_us): (u32, f64, f64),
    spinners: u32,
    idle: bool,
) -> LatencyId {
    let service = config.add_group(GroupSpec::new("/service", GroupId::ROOT));
    let mut batch = GroupSpec::new("/batch", GroupId::ROOT);
    batch.idle = idle;
    let batch = config.add_group(batch);
    let latency = LatencyId(config.latencies.len() as u32);
    let busy = model.cpus;
    let (wake_us, turn_us) = match busy {
        1 => (OWN.wake_alone_us, 0.0),
        _ => (OWN.wake_us, OWN.turn_us),
    };
    let duty = Duty {
        threads,
        work_us: work_us + wake_us,
        interval_us: 10_000.0,
        stagger_us,
        start_ms: 200.0,
        birth_work_us: OWN.birth_us,
        check_us: OWN.check_us * f64::from(busy) + turn_us,
        window_ms: Some(5000.0),
        ..Duty::default()
    };
    duty.build(&Place::new("service", service), config);
    let spin = Duty {
        threads: 0,
        spinners,
        start_ms: 200.0,
        window_ms: Some(5000.0),
        ..Duty::default()
    };
    spin.build(&Place::new("batch", batch), config);
    latency
}

fn forks(model: &Model, config: &mut Config, beside: bool) -> LatencyId {
    let busy = if beside { f64::from(model.cpus) } else { 1.0 };
    let fork_ns = (model.fork_us * busy * 1e3) as u64;
    let exit_ns = (model.exit_us * busy * 1e3) as u64;
    let group = config.add_group(GroupSpec::new("/forks", GroupId::ROOT));
    let workload = config.add_workload("forks");
    let latency = config.add_latency(workload, "process");
    let begin_ns = if beside { 500_000_000 } else { 0 };
    let (mut made, mut stage, mut begun_ns) = (0, 0, 0);
    let parent = move |ctx: &mut Context| {
        stage = (stage + 1) % 3;
        match stage {
            1 if made == FORKS => Step::Exit,
            1 => Step::SleepUntil {
                at_ns: begin_ns + made * FORK_EVERY_NS,
            },
            2 => {
                begun_ns = ctx.now_ns();
                Step::Compute { ns: fork_ns }
            }
            _ => {
                let (from_ns, mut steps) = (begun_ns, 0);
                let child = move |ctx: &mut Context| {
                    steps += 1;
                    match steps {
                        1 => Step::Compute { ns: FORK_WORK_NS },
                        2 => {
                            ctx.record(latency, ctx.now_ns() - from_ns);
                            Step::Compute { ns: exit_ns }
                        }
                        _ => Step::Exit,
                    }
                };
                ctx.fork(TaskSpec::new(group, workload, format!("child-{made}"), child));
                made += 1;
                Step::ReadClock
            }
        }
    };
    config.add_task(TaskSpec::new(group, workload, "parent", parent));
    if beside {
        let spin = config.add_group(GroupSpec::new("/spin", GroupId::ROOT));
        let spinners = Duty {
            threads: 0,
            spinners: model.cpus,
            window_ms: Some(3000.0),
            ..Duty::default()
        };
        spinners.build(&Place::new("spin", spin), config);
    }
    latency
}

/// Prints a case's figures beside each other, and returns whether all of them held.
fn print(case: &Case, live: &Measured, simulated: &Measured) -> bool {
    let mut held = true;
    let mut row = |name: &str, live: f64, simulated: f64, digits: usize, within: Option<f64>| {
        let off = if live == simulated {
            0.0
        } else {
            100.0 * (simulated - live) / live
        };
        let verdict = match within {
            None => "",
            Some(percent) if off.abs() <= percent => "holds",
            Some(_) => "MISSED",
        };
        held &= verdict != "MISSED";
        let line = format!("  {name:<42} {live:>10.digits$} {simulated:>10.digits$} {off:>8.1}%  {verdict}");
        println!("{}", line.trim_end());
    };
    let given = matches!(case.gives, Some(Cost::Trip | Cost::Fork));
    let latencies = (!given).then_some(LATENCIES_PERCENT);
    row("p50, us", live.p50_us, simulated.p50_us, 1, latencies);
    row("p99, us", live.p99_us, simulated.p99_us, 1, latencies);
    let total: f64 = live.placed.iter().sum();
    for (kind, name) in KINDS.iter().enumerate() {
        let (live, simulated) = (live.placed[kind], simulated.placed[kind]);
        let many = total > 0.0 && live.max(simulated) * 100.0 >= COUNTS_LEAST_PERCENT * total;
        if many {
            row(
                &format!("placed: {name}"),
                live,
                simulated,
                0,
                Some(COUNTS_PERCENT),
            );
        }
    }
    held
}
