// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server of metrics that works, and one that fails in each way known: what is lost is said, and no class becomes another
//! one but "unknown".
use crate::common::server::{Asked, Fake, Fault, END_MS};
use crate::common::{fleet, Made, BEGIN_MS};
use plimsoll_screen::prometheus::{fetch, Access, FetchError, FirstLook, Server, Wanted};
use plimsoll_screen::{Class, Options, Screening};
use std::collections::BTreeMap;
use std::time::Duration;

/// One container of each class, each in a namespace and a pod of its own.
fn made() -> Vec<Made> {
    let fleet = fleet().into_iter().enumerate();
    fleet
        .map(|(i, made)| made.pod(&format!("space{i}"), &format!("pod{i}")))
        .collect()
}

/// With the time-out that users have: a machine that is busy is no fault of the server.
fn access(fake: &Fake) -> Access {
    Access {
        wait: Duration::from_millis(1),
        ..Access::new(&fake.url)
    }
}

fn wanted() -> Wanted {
    Wanted {
        // So that there are several windows.
        samples_most: 600,
        ..Wanted::new(END_MS - BEGIN_MS + 60_000)
    }
}

fn ask_by(access: Access) -> Result<Screening, FetchError> {
    let server = Server::new(access).expect("an address");
    fetch(&server, &wanted(), &mut |_| ()).map(|found| found.finish(&Options::default()))
}

fn ask(fake: &Fake) -> Result<Screening, FetchError> {
    ask_by(access(fake))
}

/// Of a server that is silent now and then: with a time-out that is short, and a longer one where a busy machine was late with
/// an answer that does come.
fn ask_silent(
    fake: &Fake,
    is_right: impl Fn(&Result<Screening, FetchError>) -> bool,
) -> Result<Screening, FetchError> {
    let asked = |ms| {
        ask_by(Access {
            timeout: Duration::from_millis(ms),
            ..access(fake)
        })
    };
    let short = [250, 2_000].into_iter().map(asked).find(&is_right);
    short.unwrap_or_else(|| asked(16_000))
}

fn classes(found: &Screening) -> BTreeMap<String, Class> {
    found
        .rows
        .iter()
        .map(|row| (row.workload.name.clone(), row.class))
        .collect()
}

fn right() -> BTreeMap<String, Class> {
    let found = ask(&Fake::new(made(), |_| None)).expect("a sound server");
    classes(&found)
}

/// Whether samples are asked for.
fn is_window(asked: &Asked) -> bool {
    asked.get("query").ends_with(']')
}

#[test]
fn a_sound_server_is_asked_with_get_in_windows_and_gives_what_files_give() {
    let fake = Fake::new(made(), |_| None);
    let found = ask(&fake).expect("sound");
    assert!(
        !found.incomplete && found.faults == Default::default(),
        "{:?}",
        found.warnings
    );
    let from_files = crate::common::screen(&made().iter().map(Made::json).collect::<Vec<_>>());
    assert_eq!(found.samples, from_files.samples, "each sample once");
    let used = |screening: &Screening| -> BTreeMap<String, (Class, u64, String)> {
        let rows = screening.rows.iter();
        rows.map(|row| {
            (
                row.pod.clone(),
                (row.class, row.samples, format!("{:.9}", row.used)),
            )
        })
        .collect()
    };
    assert_eq!(used(&found), used(&from_files));
    assert!(
        found.rows.iter().all(|row| row.workload.kind == "StatefulSet"),
        "owners are known"
    );
    let asked = fake.asked.lock().expect("no panic");
    assert!(asked.iter().all(|one| one.method == "GET"));
    let windows = asked
        .iter()
        .filter(|one| one.samples_of("container_cpu_usage_seconds_total"))
        .count();
    assert!(windows > 3, "{windows} windows");
}

/// Some 50 of 400 samples of each container first.
fn first_look(fleet: Vec<Made>) -> (Fake, Screening) {
    let fake = Fake::new(fleet, |_| None);
    let server = Server::new(access(&fake)).expect("an address");
    let wanted = Wanted {
        first_look: Some(FirstLook {
            looks: 50,
            ..FirstLook::new(Options::default())
        }),
        ..wanted()
    };
    let found = fetch(&server, &wanted, &mut |_| ()).expect("sound");
    (fake, found.finish(&Options::default()))
}

#[test]
fn after_a_first_look_every_sample_is_asked_for_only_where_the_class_is_in_doubt() {
    let clear = crate::common::limited(1.0, 0.5, 0.0).pod("clear", "clear");
    // Throttled in 1% of its periods, where that class begins.
    let doubtful = crate::common::limited(1.0, 0.2, 0.01).pod("doubtful", "doubtful");
    let (fake, found) = first_look(vec![clear, doubtful]);
    let one_in: BTreeMap<_, _> = found
        .rows
        .iter()
        .map(|row| (row.pod.as_str(), row.one_in))
        .collect();
    assert!(one_in["clear"] > 7.0, "{one_in:?}");
    assert_eq!(one_in["doubtful"], 1.0);
    let doubtful = found
        .rows
        .iter()
        .find(|row| row.pod == "doubtful")
        .expect("a row");
    assert_eq!(doubtful.samples, 400, "each of its samples once");
    let asked = fake.asked.lock().expect("no panic");
    let raw = asked.iter().filter(|one| one.get("query").ends_with(']'));
    let long = raw.filter(|one| one.get("query").contains("namespace=\"clear\""));
    assert_eq!(long.count(), 0, "of what is clear nothing more is asked");
    assert!(found.extent().contains("one of 8 samples"), "{}", found.extent());
    assert!(asked.iter().all(|one| one.method == "GET"));
}

#[test]
fn a_first_look_gives_the_classes_and_sums_of_all_samples() {
    let right = ask(&Fake::new(made(), |_| None)).expect("sound");
    let (_, found) = first_look(made());
    assert_eq!(classes(&found), classes(&right));
    assert!(found.samples < right.samples, "{} samples", found.samples);
    for (row, all) in found.rows.iter().zip(&right.rows) {
        // Use swings by a tenth; 50 looks see its mean to a fiftieth, and periods at the beginning once or not.
        assert!(
            (row.used - all.used).abs() < 0.02 * all.used,
            "{} {}",
            row.used,
            all.used
        );
        assert!(
            (row.periods - all.periods).abs() <= 0.03 * all.periods,
            "{} {}",
            row.periods,
            all.periods
        );
    }
}

#[test]
fn a_counter_that_fell_is_looked_at_whole() {
    let mut random = rand::SeedableRng::seed_from_u64(1);
    let mut fleet = made();
    fleet[3].damage_one(1, &mut random);
    let (_, found) = first_look(fleet);
    let whole: Vec<_> = found
        .rows
        .iter()
        .filter(|row| row.one_in == 1.0)
        .map(|row| row.pod.as_str())
        .collect();
    assert!(whole.contains(&"pod3"), "{whole:?}");
    assert!(
        found.faults.resets > 0,
        "and what fell is said: {:?}",
        found.warnings
    );
}

#[test]
fn token_and_headers_come_with_every_request() {
    let fake = Fake::new(made(), |_| None);
    let server = Server::new(Access {
        token: Some("secret".into()),
        headers: vec![("X-Scope-OrgID".into(), "team".into())],
        ..access(&fake)
    })
    .expect("sound");
    fetch(&server, &wanted(), &mut |_| ()).expect("sound");
    for asked in fake.asked.lock().expect("no panic").iter() {
        let head = asked.headers.to_lowercase();
        assert!(head.contains("authorization: bearer secret\r\n"), "{head}");
        assert!(head.contains("x-scope-orgid: team\r\n"), "{head}");
    }
}

#[test]
fn what_fails_once_is_asked_again_and_nothing_is_lost() {
    let right = right();
    let faults = [
        Fault::Status(500, "oops"),
        Fault::Status(429, ""),
        Fault::Status(502, "<html>bad gateway</html>"),
        Fault::Cut,
        Fault::Half,
        Fault::Body(String::new()),
    ];
    for fault in faults {
        let own = fault.clone();
        let fake = Fake::new(made(), move |asked| (asked.before == 0).then(|| own.clone()));
        let found = ask(&fake).expect("the second attempt is sound");
        assert_eq!(classes(&found), right, "{fault:?}");
        assert!(
            !found.incomplete && found.faults == Default::default(),
            "{fault:?}: {:?}",
            found.warnings
        );
    }
}

#[test]
fn a_window_that_cannot_be_had_is_a_gap_that_is_said() {
    let right = right();
    let faults = [
        (Fault::Status(500, "disk on fire"), "disk on fire"),
        (Fault::Cut, "cut off"),
        (Fault::Half, "EOF"),
        (Fault::Body("[]".into()), "object"),
        (
            Fault::Body(r#"{"status":"error","error":"it is late"}"#.into()),
            "it is late",
        ),
    ];
    for (fault, word) in faults {
        for metric in [
            "container_cpu_usage_seconds_total",
            "container_cpu_cfs_throttled_periods_total",
        ] {
            let own = fault.clone();
            // The windows that end in the middle of the time.
            let middle = BEGIN_MS / 1000 + 4_000..BEGIN_MS / 1000 + 7_000;
            let fake = Fake::new(made(), move |asked| {
                let at: f64 = asked.get("time").parse().unwrap_or(0.0);
                (asked.samples_of(metric) && middle.contains(&(at as i64))).then(|| own.clone())
            });
            let found = ask(&fake).expect("the rest is sound");
            assert!(found.incomplete, "{fault:?}");
            let said = found.warnings.join("\n");
            assert!(
                said.contains(word) && said.contains("hours are missing"),
                "{fault:?}: {said}"
            );
            for (name, class) in classes(&found) {
                assert!(
                    class == right[&name] || class == Class::Unknown,
                    "{name}: {class:?} by {fault:?}"
                );
            }
        }
    }
}

#[test]
fn what_was_too_much_is_asked_for_in_smaller_pieces() {
    let right = right();
    let too_much = |asked: &Asked| {
        let query = asked.get("query");
        let length = query
            .rsplit_once('[')
            .map_or("0", |(_, rest)| rest.trim_end_matches("ms]"));
        length.parse::<i64>().is_ok_and(|ms| ms > 1_300_000)
    };
    for fault in [
        Fault::Status(
            422,
            r#"{"status":"error","error":"query processing would load too many samples"}"#,
        ),
        Fault::Status(504, ""),
        Fault::Status(
            503,
            r#"{"status":"error","error":"query timed out in expression evaluation"}"#,
        ),
        Fault::Silence,
    ] {
        let own = fault.clone();
        let fake = Fake::new(made(), move |asked| too_much(asked).then(|| own.clone()));
        let found = match fault {
            Fault::Silence => ask_silent(&fake, |found| found.as_ref().is_ok_and(|found| !found.incomplete)),
            _ => ask(&fake),
        };
        let found = found.expect("smaller pieces are sound");
        assert_eq!(classes(&found), right, "{fault:?}");
        assert!(!found.incomplete, "{fault:?}: {:?}", found.warnings);
    }
}

#[test]
fn a_server_that_cannot_be_asked_is_an_error_that_says_what_to_do() {
    let cases = [
        (Fault::Status(401, "no"), true, "token"),
        (Fault::Status(403, ""), true, "token"),
        (Fault::Status(404, "page not found"), true, "API of Prometheus"),
        (Fault::Status(302, ""), true, "leads to"),
        (Fault::Body("<!DOCTYPE html><p>log in</p>".into()), true, "a page"),
        (Fault::Status(500, "oops"), false, "oops (4 attempts)"),
        (Fault::Body("{}".into()), false, "data"),
        (Fault::Silence, false, "no answer in time"),
        (
            Fault::Body(r#"{"status":"success","data":{"resultType":"scalar","result":[0,"NaN"]}}"#.into()),
            false,
            "seconds since 1970",
        ),
    ];
    for (fault, given, word) in cases {
        let own = fault.clone();
        let fake = Fake::new(made(), move |_| Some(own.clone()));
        let says = |found: &Result<_, FetchError>| {
            found
                .as_ref()
                .is_err_and(|error| error.to_string().contains(word))
        };
        let error = match fault {
            Fault::Silence => ask_silent(&fake, says),
            _ => ask(&fake),
        };
        let error = error.expect_err("no answer");
        assert_eq!(matches!(error, FetchError::Given(_)), given, "{fault:?}: {error}");
        assert!(error.to_string().contains(word), "{fault:?}: {error}");
    }
    // No process listens there: the port was just closed.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound");
    let server = Server::new(Access {
        wait: Duration::from_millis(1),
        ..Access::new(format!("http://user:password@{closed}"))
    });
    let error = fetch(&server.expect("an address"), &wanted(), &mut |_| ())
        .err()
        .expect("closed");
    assert!(
        matches!(&error, FetchError::Failed(text) if text.contains("refused")),
        "{error}"
    );
    assert!(!error.to_string().contains("password"), "{error}");
    for url in [
        "localhost:9090",
        "ftp://host",
        "http://",
        "http://host/?query=1",
        "https:///path",
    ] {
        let error = Server::new(Access::new(url)).err().expect(url);
        assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
    }
}

/// A certificate that is not trusted fails in the same place.
#[test]
fn a_server_without_the_tls_that_was_given_is_asked_once() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Its greeting, so that closing the connection does not take the answer along.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let server = Server::new(Access {
        wait: Duration::from_millis(1),
        ..Access::new(format!("https://{at}"))
    })
    .expect("an address");
    let error = fetch(&server, &wanted(), &mut |_| ())
        .err()
        .expect("no TLS is spoken there");
    assert!(
        matches!(&error, FetchError::Given(text) if text.contains("trusts") && !text.contains("attempts")),
        "{error}"
    );
}

#[test]
fn a_server_that_goes_away_is_the_end() {
    let fake = Fake::new(made(), |asked| {
        let at: f64 = asked.get("time").parse().unwrap_or(0.0);
        (at > BEGIN_MS as f64 / 1e3 + 5_000.0 && is_window(asked)
            || asked.get("query") == "time()" && asked.before > 0)
            .then_some(Fault::Status(503, "gone"))
    });
    let error = ask(&fake).expect_err("gone");
    assert!(
        matches!(&error, FetchError::Failed(text) if text.contains("gone")),
        "{error}"
    );
}

#[test]
fn without_limits_and_requests_nothing_is_called_unlimited() {
    // They fail: nothing can be said.
    let fake = Fake::new(made(), |asked| {
        asked
            .path
            .ends_with("query_range")
            .then_some(Fault::Status(500, "lost"))
    });
    let error = ask(&fake).expect_err("classes would be wrong");
    assert!(error.to_string().contains("lost"), "{error}");
    // They are empty: kube-state-metrics is not there, and cAdvisor's settings are dropped.
    let empty = || Fault::Body(r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.into());
    let found = ask(&Fake::new(made(), move |asked| {
        asked.path.ends_with("query_range").then(empty)
    }))
    .expect("an answer");
    for row in &found.rows {
        assert_eq!(row.class, Class::Unknown, "{}", row.reason);
    }
}

#[test]
fn owners_that_cannot_be_had_are_said() {
    let fake = Fake::new(made(), |asked| {
        asked
            .path
            .ends_with("series")
            .then_some(Fault::Status(500, "no owners"))
    });
    let found = ask(&fake).expect("rows by pod");
    assert!(found.incomplete && found.warnings.iter().any(|text| text.contains("kube_pod_owner")));
    assert!(found.rows.iter().all(|row| row.workload.kind == "Pod"));
}

#[test]
fn warnings_and_partial_answers_are_said() {
    let what_is_asked = |asked: &Asked| match asked.path.rsplit('/').next() {
        Some("query_range") => "settings",
        Some("values") => "namespaces",
        Some("series") => "owners",
        _ if asked.get("query").starts_with("count") => "containers",
        _ if is_window(asked) => "samples",
        _ => "time",
    };
    for (to, word) in [
        (
            r#""status":"success","warnings":["store b is away"]"#,
            "store b is away",
        ),
        (r#""status":"success","isPartial":true"#, "partial"),
    ] {
        for what in ["settings", "namespaces", "owners", "containers", "samples"] {
            let fake = Fake::new(made(), move |asked| {
                (what_is_asked(asked) == what).then_some(Fault::Replace(r#""status":"success""#, to))
            });
            let found = ask(&fake).expect("an answer");
            assert!(
                found.incomplete && found.warnings.iter().any(|text| text.contains(word)),
                "{what}: {:?}",
                found.warnings
            );
        }
    }
}

/// A store that is away has the limits, or the requests, of all but one container.
#[test]
fn settings_that_are_answered_in_part_make_no_other_class() {
    let right = right();
    for forget in [Made::unnamed_limit, Made::unnamed_request] {
        let mut fleet = made();
        // Without its limit nothing says that it has one: these series are often dropped, too.
        fleet[3].drop_series("container_cpu_cfs_periods_total");
        fleet[3].drop_series("container_cpu_cfs_throttled_periods_total");
        // Without its request its limit would be taken for it.
        fleet[2] = crate::common::limited(4.0, 0.1, 0.0)
            .request(0.5)
            .pod("space2", "pod2");
        let (first, others) = fleet.split_at(1);
        let fleet: Vec<Made> = first
            .iter()
            .cloned()
            .chain(others.iter().cloned().map(forget))
            .collect();
        let fake = Fake::new(fleet, |asked| {
            let warning = r#""status":"success","warnings":["store b is away"]"#;
            let settings = asked.path.ends_with("query_range");
            settings.then_some(Fault::Replace(r#""status":"success""#, warning))
        });
        let found = ask(&fake).expect("an answer");
        assert!(found.incomplete);
        for (name, class) in classes(&found) {
            let right = if name == "pod2" { Class::Fine } else { right[&name] };
            assert!(class == right || class == Class::Unknown, "{name}: {class:?}");
        }
        assert_eq!(
            classes(&found)["pod0"],
            right["pod0"],
            "what is known has its class"
        );
    }
}

#[test]
fn an_empty_server_has_no_row() {
    let found = ask(&Fake::new(Vec::new(), |_| None)).expect("an empty answer is one");
    assert!(found.rows.is_empty() && found.missing.len() == 6);
}

/// The made-up server's clock is years behind: the week that is asked for is its own. One that is asked for up to a given time has
/// no clock to differ.
#[test]
fn a_clock_that_differs_is_said_and_the_servers_counts() {
    let right = right();
    let fake = Fake::new(made(), |_| None);
    let found = ask(&fake).expect("sound");
    let says = |found: &Screening| {
        found
            .warnings
            .iter()
            .any(|warning| warning.contains("the server's clock is"))
    };
    assert!(says(&found), "{:?}", found.warnings);
    assert!(!found.incomplete && found.samples > 0);
    assert_eq!(classes(&found), right);
    let wanted = Wanted {
        end_ms: Some(END_MS),
        ..wanted()
    };
    let server = Server::new(access(&fake)).expect("an address");
    let found = fetch(&server, &wanted, &mut |_| ())
        .expect("sound")
        .finish(&Options::default());
    assert!(!says(&found), "{:?}", found.warnings);
    assert_eq!(classes(&found), right);
    // No server's clock stands before 1970.
    let fake = Fake::new(made(), |asked| {
        (asked.get("query") == "time()").then_some(Fault::Replace("1700", "-1700"))
    });
    let error = ask(&fake)
        .map(|found| found.samples)
        .expect_err("no time")
        .to_string();
    assert!(error.contains("allowed: seconds since 1970"), "{error}");
}

#[test]
fn a_server_that_ignores_the_time_asked_for_is_noticed() {
    let right = right();
    let all = made();
    let fake = Fake::new(made(), move |asked| {
        let metric = asked.get("query").split('{').next()?;
        is_window(asked).then(|| Fault::Body(crate::common::server::everything(&all, metric)))
    });
    let found = ask(&fake).expect("an answer");
    assert!(found.faults.outside > 0);
    assert_eq!(classes(&found), right);
}

#[test]
fn damaged_samples_of_a_server_never_change_a_class_but_to_unknown() {
    use rand::SeedableRng;
    let right = right();
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(21);
    for kind in 0..6 {
        let mut fleet = made();
        for made in &mut fleet {
            made.damage_one(kind, &mut random);
        }
        let found = ask(&Fake::new(fleet, |_| None)).expect("an answer");
        let unknown = found.count(Class::Unknown);
        assert!(unknown < found.rows.len() / 2, "damage {kind}: {unknown} unknown");
        for (name, class) in classes(&found) {
            assert!(
                class == right[&name] || class == Class::Unknown,
                "damage {kind} made {class:?} of {name}"
            );
        }
        // Samples far outside are not asked for, so a server does not send them.
        assert!(kind == 4 || found.faults != Default::default(), "damage {kind}");
    }
}
