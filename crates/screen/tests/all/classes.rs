// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers with a known answer, as Prometheus would say them, and what damage does to the answer: a class may become
//! "unknown", never another.
use crate::common::{fleet, limited, screen, Made, BEGIN_MS};
use plimsoll_screen::{answer, Class, Collector, Options};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

fn class(made: &Made) -> (Class, String) {
    let found = screen(&[made.json()]);
    assert_eq!(found.rows.len(), 1, "{found:#?}");
    (found.rows[0].class, found.rows[0].reason.clone())
}

#[test]
fn each_class_is_found_in_a_container_made_for_it() {
    let cases = [
        (
            "a fifth of the limit used, a few periods throttled",
            limited(1.0, 0.2, 0.02),
            Class::ThrottledByBursts,
        ),
        (
            "all of the limit used, all throttled",
            limited(1.0, 0.99, 0.95),
            Class::TooSmall,
        ),
        (
            "nothing throttled, all but full",
            limited(1.0, 0.96, 0.0).request(1.0),
            Class::TooSmall,
        ),
        (
            "nothing throttled, a tenth used",
            limited(4.0, 0.1, 0.0).request(4.0),
            Class::TooLarge,
        ),
        (
            "nothing throttled, most used",
            limited(1.0, 0.7, 0.0).request(1.0),
            Class::Fine,
        ),
        (
            "no limit, within its request",
            limited(1.0, 0.7, 0.0).no_limit().request(1.0),
            Class::NoLimitFine,
        ),
        (
            "no limit, far beyond its request",
            limited(4.0, 0.7, 0.0).no_limit().request(0.5),
            Class::NoLimitNeedsOne,
        ),
        (
            "neither limit nor request",
            limited(4.0, 0.7, 0.0).no_limit(),
            Class::NoLimitNeedsOne,
        ),
        ("few samples", limited(1.0, 0.2, 0.02).samples(20), Class::Unknown),
    ];
    for (what, made, wanted) in cases {
        let (found, reason) = class(&made);
        assert_eq!(found, wanted, "{what}: {reason}");
    }
}

#[test]
fn without_the_counters_of_throttling_a_limited_container_is_unknown() {
    let mut made = limited(1.0, 0.2, 0.02);
    made.drop_series("container_cpu_cfs_throttled_periods_total");
    let (found, reason) = class(&made);
    assert_eq!(found, Class::Unknown, "{reason}");
    assert!(reason.contains("throttled"), "{reason}");
}

#[test]
fn pods_are_grouped_by_what_owns_them_through_replica_sets_and_jobs() {
    let owner = |name: &str, labels: &str| {
        format!(
            r#"{{"metric":{{"__name__":"{name}","namespace":"shop",{labels}}},"value":[1700000000,"1"]}}"#
        )
    };
    let extra = [
        owner(
            "kube_pod_owner",
            r#""pod":"web-5d-a","owner_kind":"ReplicaSet","owner_name":"web-5d""#,
        ),
        owner(
            "kube_pod_owner",
            r#""pod":"web-5d-b","owner_kind":"ReplicaSet","owner_name":"web-5d""#,
        ),
        owner(
            "kube_replicaset_owner",
            r#""replicaset":"web-5d","owner_kind":"Deployment","owner_name":"web""#,
        ),
        owner(
            "kube_pod_owner",
            r#""pod":"mail-1-x","owner_kind":"Job","owner_name":"mail-1""#,
        ),
        owner(
            "kube_job_owner",
            r#""job_name":"mail-1","owner_kind":"CronJob","owner_name":"mail""#,
        ),
        owner(
            "kube_pod_owner",
            r#""pod":"bare","owner_kind":"<none>","owner_name":"<none>""#,
        ),
    ];
    let pods = ["web-5d-a", "web-5d-b", "mail-1-x", "bare"]
        .map(|pod| limited(1.0, 0.2, 0.02).pod("shop", pod).json());
    let owners = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{}]}}}}"#,
        extra.join(",")
    );
    let found = screen(&[pods.to_vec(), vec![owners]].concat());
    let mut names: Vec<String> = found
        .rows
        .iter()
        .map(|row| format!("{}/{} {}", row.workload.kind, row.workload.name, row.pods))
        .collect();
    names.sort();
    assert_eq!(names, ["CronJob/mail 1", "Deployment/web 2", "Pod/bare 1"]);
}

/// What a limit takes away, another gives: the order of what helps.
#[test]
fn more_burst_and_more_quota_never_throttle_more_and_bounds_contain_the_estimate() {
    for made in fleet() {
        let found = screen(&[made.json()]);
        for (what, _, estimate) in &found.rows[0].estimates {
            assert!(
                0.0 <= estimate.low
                    && estimate.low <= estimate.share
                    && estimate.share <= estimate.high
                    && estimate.high <= 1.0,
                "{what}: {estimate:?}"
            );
        }
    }
}

#[test]
fn damaged_series_never_change_a_class_but_to_unknown() {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(11);
    let mut unknown = 0;
    let mut all = 0;
    for made in fleet() {
        let (sound, _) = class(&made);
        for round in 0..12 {
            let mut damaged = made.clone();
            damaged.damage(round, &mut random);
            let mut documents = damaged.documents();
            documents.shuffle(&mut random);
            let found = screen(&documents);
            assert_eq!(found.rows.len(), 1);
            let row = &found.rows[0];
            all += 1;
            unknown += u32::from(row.class == Class::Unknown && sound != Class::Unknown);
            assert!(
                row.class == sound || row.class == Class::Unknown,
                "damage {round} made {:?} of {sound:?}: {}\n{:?}",
                row.class,
                row.reason,
                found.warnings
            );
        }
    }
    assert!(
        unknown * 4 < all,
        "{unknown} of {all} are unknown: damage is taken for ignorance"
    );
}

#[test]
fn every_kind_of_damage_is_said() {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
    let said = [
        "not numbers",
        "resets",
        "come twice",
        "out of order",
        "outside",
        "more than a machine can",
    ];
    for (kind, word) in said.iter().enumerate() {
        let mut made = limited(1.0, 0.2, 0.02);
        made.damage_one(kind, &mut random);
        let range_ms = (crate::common::BEGIN_MS, crate::common::BEGIN_MS + 30_000 * 400);
        let mut collector = Collector::new(Some(range_ms));
        for document in made.documents() {
            answer::read(document.as_bytes(), &mut |series| collector.take(series, None))
                .expect("sound JSON");
        }
        let found = collector.finish(&Options::default());
        assert!(
            found.warnings.iter().any(|text| text.contains(word)),
            "{word}: {:?}",
            found.warnings
        );
    }
}

#[test]
fn two_servers_that_scraped_the_same_container_count_once() {
    let made = limited(1.0, 0.2, 0.02);
    let twice = [made.clone().replica("a").json(), made.clone().replica("b").json()];
    let (one, two) = (screen(&[made.json()]), screen(&twice));
    let (one, two) = (&one.rows[0], &two.rows[0]);
    assert_eq!(
        (one.class, one.used, one.periods),
        (two.class, two.used, two.periods)
    );
}

/// For 20 minutes, which are too long for a sum.
#[test]
fn what_one_of_two_servers_missed_the_other_has_seen() {
    let made = limited(1.0, 0.2, 0.02);
    let away = BEGIN_MS + 3_000_000..BEGIN_MS + 4_200_000;
    let one = made.clone().replica("a").without(&away);
    let two = made.clone().replica("b").scraped_later(7_000);
    let (right, found) = (screen(&[made.json()]), screen(&[one.json(), two.json()]));
    let (right, found) = (&right.rows[0], &found.rows[0]);
    assert!(
        found.periods > 0.99 * right.periods && found.periods <= right.periods,
        "{} of {} periods",
        found.periods,
        right.periods
    );
}

#[test]
fn what_comes_in_stretches_is_what_comes_at_once() {
    let made = limited(1.0, 0.3, 0.05).request(0.4);
    let whole = screen(&[made.json()]);
    let mut collector = Collector::new(None);
    for stretch in made.stretches(7) {
        answer::read(stretch.as_bytes(), &mut |series| collector.take(series, None)).expect("sound JSON");
        collector.flush();
    }
    let parts = collector.finish(&Options::default());
    let (one, two) = (&whole.rows[0], &parts.rows[0]);
    assert_eq!(
        (one.class, one.samples, one.periods),
        (two.class, two.samples, two.periods)
    );
    assert!((one.used - two.used).abs() < 1e-9);
}

#[test]
fn what_is_no_answer_is_refused_with_what_is_wrong() {
    let cases = [
        ("", "nothing in it"),
        ("[]", "object"),
        (r#"{"status":"success"}"#, "data"),
        (r#"{"status":"success","data":{"resultType":"matrix"}}"#, "result"),
        (
            r#"{"status":"success","data":{"result":[{"metric":{},"values":[[1,"x"]]}]}}"#,
            "number",
        ),
        (
            r#"{"status":"success","data":{"result":[{"metric":{},"values":[[1]]}]}}"#,
            "a time and a value",
        ),
        (
            r#"{"status":"success","data":{"result":[{"metric":{},"values":[[1e300,"1"]]}]}}"#,
            "seconds since 1970",
        ),
        (
            r#"{"status":"success","data":{"result":[{"metric":{"__name__":"a"},"values":[[1,"2"],"#,
            "EOF",
        ),
        (
            r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
            "query timed out",
        ),
        (r#"{"status":"error","data":null}"#, "status: error"),
    ];
    for (text, wanted) in cases {
        let error = answer::read(text.as_bytes(), &mut |_| ())
            .expect_err(text)
            .to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    // Whatever byte an answer ends at, it is an error and no panic.
    let sound = limited(1.0, 0.2, 0.02).samples(3).documents().remove(0);
    for end in 1..sound.len() {
        assert!(
            answer::read(&sound.as_bytes()[..end], &mut |_| ()).is_err(),
            "{end}"
        );
    }
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(5);
    for _ in 0..2_000 {
        let mut bytes = sound.clone().into_bytes();
        for _ in 0..3 {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        let _ = answer::read(&bytes, &mut |_| ());
    }
}
