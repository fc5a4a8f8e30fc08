// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients that wait, on the machine of the service that they ask: what they run they take from it, and the more the sooner they are
//! answered. The truth is simulated.
use crate::common::recorder::Recorder;
use crate::common::sockets::{socket, with_connections, US};
use crate::common::{compile, in_100_ms, run, since_6_6};
use plimsoll_replay::Outcome;
use plimsoll_sim::{
    ChannelId, Config, Context, GroupId, GroupSpec, Machine, Policy, Simulation, Step, TaskSpec, Topology,
};
use plimsoll_stats::percentile_ns;
use plimsoll_trace::example::MS;
use plimsoll_trace::{Event, Group, Header, SocketOp};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::{Arc, Mutex};

const DURATION_NS: u64 = 2_000 * MS as u64;
const WORKERS: u32 = 2;
const CLIENTS: u32 = 6;
/// A request takes 0.7 ms of the service on average.
const WORK_NS: [u64; 2] = [200 * US as u64, 1200 * US as u64];

type Seen = Arc<Mutex<Vec<Event>>>;

/// Takes what came first, and answers that.
fn worker(number: u32, seen: Seen) -> impl FnMut(&mut Context) -> Step + Send {
    let mut rng = Pcg64::seed_from_u64(u64::from(number));
    let tid = 100 + number;
    let mut serves = None;
    move |context| {
        let now_ns = context.now_ns() as i64;
        let note = |client: u64, op, bytes| {
            let event = socket(now_ns, tid, client, op, bytes);
            seen.lock().unwrap().push(event);
        };
        if let Some(client) = context.received() {
            note(client, SocketOp::Read, 100);
            serves = Some(client);
            return Step::Compute {
                ns: rng.random_range(WORK_NS[0]..WORK_NS[1]),
            };
        }
        match serves.take() {
            Some(client) => {
                note(client, SocketOp::Wrote, 200);
                Step::Send {
                    channel: ChannelId(1 + client as u32),
                    value: 1,
                }
            }
            None => Step::Receive {
                channel: ChannelId(0),
            },
        }
    }
}

/// Asks, waits for the answer, and runs for `runs_ns` before it asks again.
fn client(
    number: u32,
    runs_ns: u64,
    seen: Seen,
    answered: Arc<Mutex<Vec<u64>>>,
) -> impl FnMut(&mut Context) -> Step + Send {
    let own = ChannelId(1 + number);
    let mut asked_ns = None;
    let mut asks = true;
    move |context| {
        let now_ns = context.now_ns();
        if context.received().is_some() {
            asks = true;
            return Step::Compute { ns: runs_ns };
        }
        if std::mem::take(&mut asks) {
            if let Some(asked_ns) = asked_ns.replace(now_ns) {
                answered.lock().unwrap().push(now_ns - runs_ns - asked_ns);
            }
            let event = socket(now_ns as i64, 0, u64::from(number), SocketOp::Arrived, 100);
            seen.lock().unwrap().push(event);
            return Step::Send {
                channel: ChannelId(0),
                value: u64::from(number),
            };
        }
        Step::Receive { channel: own }
    }
}

/// What clients saw, ascending, and a recording of the service.
fn truth(runs_us: i64, quota_ms: Option<u64>) -> (Vec<u64>, Header, Vec<Event>) {
    let mut machine = Machine::new(Topology::flat(2));
    machine.costs = plimsoll_sim::Costs::free();
    let mut config = Config::new(machine, DURATION_NS);
    config.policy = Policy::mainline();
    since_6_6(&mut config);
    let mut web = GroupSpec::new("/web", GroupId::ROOT);
    web.limits = in_100_ms(quota_ms);
    let web = config.add_group(web);
    let mut beside = GroupSpec::new("/clients", GroupId::ROOT);
    beside.cpu_weight = 10_000;
    let beside = config.add_group(beside);
    let workload = config.add_workload("all");
    for _ in 0..=CLIENTS {
        config.add_channel(u32::MAX);
    }
    let (seen, answered) = (Seen::default(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..WORKERS {
        let task = worker(number, seen.clone());
        config.add_task(TaskSpec::new(web, workload, format!("worker{number}"), task));
    }
    for number in 0..CLIENTS {
        let task = client(number, (runs_us * US) as u64, seen.clone(), answered.clone());
        config.add_task(TaskSpec::new(beside, workload, format!("client{number}"), task));
    }
    let mut about = with_connections(0, &[], u64::from(CLIENTS));
    about.machine.kernel = Some("6.18.0".into());
    about.groups.push(Group {
        path: "/clients".into(),
        weight: Some(10_000),
        ..Default::default()
    });
    let mut recorder = Recorder::new(about, Some(web.0));
    Simulation::new(config).unwrap().run(Some(&mut recorder)).unwrap();
    let (mut header, mut events) = recorder.finish(DURATION_NS);
    header
        .threads
        .iter_mut()
        .for_each(|thread| thread.tgid = Some(100));
    if let Some(ms) = quota_ms {
        let own = header
            .groups
            .iter_mut()
            .find(|group| group.path == "/web")
            .unwrap();
        (own.quota_us, own.period_us) = (Some(ms * 1000), Some(100_000));
    }
    events.append(&mut seen.lock().unwrap());
    events.sort_by_key(|event| event.ts_ns);
    let mut answered = answered.lock().unwrap().clone();
    answered.sort_unstable();
    (answered, header, events)
}

fn figures(latencies: &[u64]) -> [f64; 2] {
    [50.0, 99.0].map(|percent| percentile_ns(latencies, percent) as f64 / MS as f64)
}

fn replayed(outcome: &Outcome) -> [f64; 2] {
    figures(&outcome.latencies(None))
}

/// Under the limit there are some 500 requests: six of them decide on p99.
fn assert_near(found: [f64; 2], truth: [f64; 2], what: &str) {
    for ((found, truth), share) in found.into_iter().zip(truth).zip([0.05, 0.1]) {
        assert!(
            (found - truth).abs() < share * truth,
            "{what}: {found} ms for {truth}"
        );
    }
}

/// Nearly always one of them runs, and not as often under a limit. (Without them half of the requests last 1.9 ms in place of 2.4.)
#[test]
fn what_clients_run_is_taken_from_the_service() {
    let [whole, limited] = [None, Some(40)].map(|quota_ms| truth(150, quota_ms));
    for (own, other, quota_us) in [(&whole, &limited, "40000"), (&limited, &whole, "max")] {
        let (program, machine) = compile(&own.1, &own.2);
        let set = format!("group.web.quota_us={quota_us}");
        let [same, changed] = [&[][..], &[&*set]].map(|sets| replayed(&run(&program, &machine, sets)));
        assert_near(same, figures(&own.0), "as recorded");
        assert_near(changed, figures(&other.0), &set);
    }
    let (program, machine) = compile(&whole.1, &whole.2);
    let alone = replayed(&run(&program, &machine, &["machine.others=none"]));
    assert!(alone[0] < 0.85 * figures(&whole.0)[0], "{alone:?}");
}
