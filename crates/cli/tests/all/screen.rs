// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll screen` as a user runs it: from files and from a server, into each kind of file.
#[path = "../../../screen/tests/all/common/mod.rs"]
mod made;
use crate::common::{directory, plimsoll_in};
use made::server::{Fake, END_MS};
use made::{fleet, openmetrics, Made, BEGIN_MS};
use plimsoll_columns::{Cell, Columns};
use std::path::Path;
use std::process::Output;

/// One container of each class.
fn six() -> Vec<Made> {
    let fleet = fleet().into_iter().enumerate();
    fleet
        .map(|(i, made)| made.pod("shop", &format!("pod{i}")))
        .collect()
}

fn screen(dir: &Path, args: &[&str]) -> Output {
    plimsoll_in(dir, &[&["screen"], args].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A folder with `fleet.om`.
fn folder(name: &str) -> std::path::PathBuf {
    let dir = directory(name);
    std::fs::write(dir.join("fleet.om"), openmetrics(&six())).expect("a file");
    dir
}

#[test]
fn every_kind_of_file_has_the_same_rows_with_a_price_and_without() {
    let dir = folder("screen-files");
    let files = [
        "--json",
        "a.json",
        "--csv",
        "a.csv",
        "--parquet",
        "a.parquet",
        "--html",
        "a.html",
    ];
    for price in [None, Some("20")] {
        let priced: Vec<&str> = price
            .into_iter()
            .flat_map(|price| ["--price-per-core", price])
            .collect();
        let output = screen(&dir, &[&["fleet.om"], &files[..], &priced].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.join("a.json")).expect("written")).expect("JSON");
        let rows = json["screening"]["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 6);
        let table =
            Columns::read(std::fs::read(dir.join("a.parquet")).expect("written"), None).expect("sound");
        let csv = std::fs::read_to_string(dir.join("a.csv")).expect("written");
        let head: Vec<&str> = csv.lines().next().expect("a head").split(',').collect();
        assert_eq!(
            head,
            table.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        );
        for (i, row) in rows.iter().enumerate() {
            let named = |name: &str| table.get(name).expect(name).cell(i);
            assert_eq!(
                named("workload"),
                Some(Cell::Text(row["workload"]["name"].as_str().unwrap().into()))
            );
            let back = row["advice"]["back_cpus"].as_f64().unwrap();
            let saved = price.map(|price| back * price.parse::<f64>().unwrap());
            for (name, wanted) in [
                ("used_cpus", row["used"].as_f64()),
                ("limit_cpus", row["limit"].as_f64()),
                ("saved_a_month", saved),
                ("saved_a_month", row["advice"]["saved_a_month"].as_f64()),
            ] {
                let found = named(name).and_then(|cell| cell.number());
                // The reader of JSON may be off by the last bit.
                let equal = found.zip(wanted).is_some_and(|(a, b)| (a - b).abs() < 1e-12);
                assert!(equal || found == wanted, "{name}: {found:?}, {wanted:?}");
            }
        }
        let page = std::fs::read_to_string(dir.join("a.html")).expect("written");
        assert_eq!(page.contains("saved a month"), price.is_some());
        assert_eq!(page.matches("<tbody>").count(), 6);
        let shown = text(&screen(&dir, &[&["fleet.om"], &priced[..]].concat()).stdout);
        assert_eq!(shown.contains("saved a month"), price.is_some(), "{shown}");
        // 4 CPUs are reserved of which 0.51 are enough.
        assert_eq!(shown.contains(" 3.5             70"), price.is_some(), "{shown}");
    }
}

#[test]
fn a_server_and_a_file_give_the_same_rows() {
    let dir = folder("screen-server");
    let fake = Fake::new(six(), |_| None);
    let until = format!("@{}", END_MS / 1000);
    let date = text(
        &std::process::Command::new("date")
            .args(["-u", "-d", &until, "+%FT%TZ"])
            .output()
            .expect("date")
            .stdout,
    );
    let last = format!("{}s", (END_MS - BEGIN_MS) / 1000 + 60);
    let asked = [
        "--prometheus",
        &fake.url,
        "--until",
        date.trim(),
        "--last",
        &last,
        "--csv",
        "server.csv",
    ];
    let output = screen(&dir, &asked);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        screen(&dir, &["fleet.om", "--csv", "file.csv"]).status.code(),
        Some(0)
    );
    let rows = |name: &str| std::fs::read_to_string(dir.join(name)).expect("written");
    assert_eq!(rows("server.csv"), rows("file.csv"));
}

#[test]
fn patches_are_written_into_a_new_folder_only() {
    let dir = folder("screen-patches");
    let output = screen(&dir, &["fleet.om", "--patches", "patches"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let names: Vec<String> = std::fs::read_dir(dir.join("patches"))
        .expect("a folder")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    assert!(
        names.contains(&"shop.statefulset.pod2.yaml".to_string()),
        "{names:?}"
    );
    let again = screen(&dir, &["fleet.om", "--patches", "patches"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("allowed: a new or empty folder"));
}

#[test]
fn wrong_flags_and_files_are_refused_with_what_is_allowed() {
    let dir = folder("screen-refused");
    std::fs::write(dir.join("half.parquet"), b"PAR1 and no more").expect("a file");
    std::fs::write(dir.join("rate.om"), "rate{pod=\"a\"} 1 1700000000\n").expect("a file");
    for (args, says) in [
        (&["fleet.om", "--price-per-core", "-1"][..], "0 .. 1000000"),
        (&["fleet.om", "--throttled", "0"], "0.01 .. 100"),
        (&["fleet.om", "--margin", "x"], "0 .. 1000"),
        (
            &["half.parquet"],
            "half.parquet: not a Parquet file that can be read",
        ),
        (&["none.om"], "none.om"),
        (&["rate.om"], "no container to screen"),
        (&["fleet.om", "--csv", "fleet.om"], "fleet.om"),
        (&["fleet.om", "--last", "1h"], "cannot be used with"),
        (&["fleet.om", "--token-file", "t"], "cannot be used with"),
        (&["--prometheus", "ftp://x"], "http"),
        (
            &["--prometheus", "http://127.0.0.1:1", "--last", "1m"],
            "15m to 400d",
        ),
        (&[], "<FILE>"),
    ] {
        let output = screen(&dir, args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}

#[test]
fn what_is_damaged_is_said_and_the_exit_code_is_1() {
    let dir = directory("screen-damaged");
    let mut damaged = six();
    damaged[0].drop_series("container_cpu_cfs_throttled_periods_total");
    let text_of = openmetrics(&damaged).replacen(" 1000 ", " NaN ", 1);
    std::fs::write(dir.join("fleet.om"), text_of).expect("a file");
    let output = screen(&dir, &["fleet.om", "--all"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("left out: ") && shown.contains("unknown"),
        "{shown}"
    );
}

/// A container without a limit: whether it has one, an answer that is not whole may have left out.
#[test]
fn an_answer_that_is_not_whole_is_said_and_the_exit_code_is_1() {
    let dir = directory("screen-part");
    let (settings, counters): (Vec<String>, Vec<String>) = six()[5]
        .documents()
        .into_iter()
        .partition(|one| one.contains("kube_pod_container"));
    let settings = settings.concat();
    let warning = r#""status":"success","warnings":["store b is away"]"#;
    let in_part = settings.replace(r#""status":"success""#, warning);
    for (name, text) in [
        ("counters", counters.concat()),
        ("whole", settings),
        ("part", in_part),
    ] {
        std::fs::write(dir.join(name), text).expect("a file");
    }
    for (settings, code, class) in [("whole", 0, "needs a limit"), ("part", 1, "unknown")] {
        let output = screen(&dir, &["counters", settings, "--csv", "found.csv"]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{shown}");
        assert_eq!(shown.contains("store b is away"), code == 1, "{shown}");
        let csv = std::fs::read_to_string(dir.join("found.csv")).expect("written");
        let row = csv.lines().nth(1).expect("a row");
        assert_eq!(row.split(',').nth(4), Some(class), "{row}");
    }
}
