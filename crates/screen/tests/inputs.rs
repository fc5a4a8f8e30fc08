// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of each format: they say the same, and what is wrong in one is named with its line.
mod common;
use common::{fleet, Made};
use plimsoll_screen::{input, Collector, Options, Screening};
use std::fmt::Write;

fn made() -> Vec<Made> {
    let fleet = fleet().into_iter().enumerate();
    fleet
        .map(|(i, made)| made.pod("shop", &format!("pod{i}")))
        .collect()
}

fn screened(text: &str) -> Screening {
    let mut collector = Collector::new(None);
    input::read(text.as_bytes(), &mut |series| collector.take(series, None)).expect(text);
    collector.finish(&Options::default())
}

/// What each row says of its counters and settings.
fn rows(found: &Screening) -> Vec<String> {
    let mut rows: Vec<String> = found
        .rows
        .iter()
        .map(|row| {
            format!(
                "{} {:?} {:?} {} {}",
                row.pod, row.limit, row.request, row.samples, row.reason
            )
        })
        .collect();
    rows.sort();
    rows
}

/// Lines of OpenMetrics as those of a CSV file with the columns that they have.
fn csv(text: &str) -> String {
    let columns = [
        "namespace",
        "pod",
        "container",
        "resource",
        "owner_kind",
        "owner_name",
    ];
    let mut out = format!("time,metric,{},value\n", columns.join(","));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').expect("labels");
        let (labels, rest) = rest.split_once("} ").expect("their end");
        let (value, time) = rest.split_once(' ').expect("value and time");
        let cell = |column: &&str| {
            let found = labels
                .split(',')
                .find_map(|label| label.strip_prefix(&format!("{column}=\"")));
            found.unwrap_or("").trim_end_matches('"').to_string()
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        writeln!(out, "{time},{name},{},{value}", cells.join(",")).expect("memory");
    }
    out
}

#[test]
fn json_openmetrics_and_csv_say_the_same() {
    let json: String = made().iter().map(Made::json).collect();
    let text = common::openmetrics(&made());
    let dumped: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            // As `promtool tsdb dump` writes it: the name as a label, times in ms.
            let (name, rest) = line.split_once('{').expect("labels");
            let (rest, time) = rest.rsplit_once(' ').expect("a time");
            format!("{{__name__=\"{name}\", {} {time}000\n", rest.replace(",", ", "))
        })
        .collect();
    let wanted = rows(&screened(&json));
    assert_eq!(wanted.len(), 6);
    for (what, text) in [
        ("OpenMetrics", text.clone()),
        ("a dump", dumped),
        ("CSV", csv(&text)),
    ] {
        assert_eq!(rows(&screened(&text)), wanted, "{what}");
    }
}

#[test]
fn labels_are_read_as_they_are_escaped_and_exemplars_are_passed_over() {
    let text = "# HELP a b\na{l=\"x\\\"y\\\\z\\n}, \", m=\"\"} 1.5 1700000000.25 # {id=\"7\"} 1 1700000000\n\
                a{l=\"x\\\"y\\\\z\\n}, \", m=\"\"} +Inf 1700000001\nb 2 1700000000\n# EOF\n";
    let mut all = Vec::new();
    let said = input::read(text.as_bytes(), &mut |series| all.push(series)).expect("sound");
    assert_eq!((said.series, said.points), (2, 3));
    assert_eq!(all[0].labels["l"], "x\"y\\z\n}, ");
    assert_eq!(
        all[0].points,
        [(1_700_000_000_250, 1.5), (1_700_000_001_000, f64::INFINITY)]
    );
    assert_eq!(all[1].labels["__name__"], "b");
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    let head = "time,metric,namespace,value\n";
    let cases = [
        ("a{l=\"x\"} 1\n".into(), "line 1: no time after the value"),
        ("# c\na{l=\"x\" 1 2\n".into(), "line 2: labels without their end"),
        ("a{l=x} 1 2\n".into(), "line 1: labels; allowed"),
        ("a{l=\"x\",l=\"y\"} 1 2\n".into(), "line 1: labels; allowed"),
        ("{l=\"x\"} 1 2\n".into(), "allowed: what Prometheus answers"),
        ("a 1 2\na one 2\n".into(), "line 2: no value"),
        ("a 1 1e300\n".into(), "line 1: the time"),
        ("a 1 2 3\n".into(), "line 1: something after the time"),
        (format!("{head}1,a,b,one\n"), "line 2: value"),
        (format!("{head}1,a,b,1\nnow,a,b,1\n"), "line 3: time"),
        (format!("{head}1,a,b\n"), "line 2: 3 cells; allowed: 4"),
        // One cell that goes on into the next line: found by `make fuzz-readers`.
        (
            "\"metric,time,value\na,1,b\"\n".into(),
            "line 1: no column \"metric\"",
        ),
    ];
    for (text, wanted) in cases {
        let text: String = text;
        let error = input::read(text.as_bytes(), &mut |_| ()).expect_err(&text);
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let error = input::read(b"a 1 2\n\xff 1 2\n", &mut |_| ()).expect_err("no UTF-8");
    assert!(error.contains("line 2: not UTF-8"), "{error}");
    // Whatever byte a file ends at, it is an error or a shorter file, and no panic.
    let text = common::openmetrics(&made()[..1]);
    for end in 0..400 {
        let _ = input::read(&text.as_bytes()[..end], &mut |_| ());
        let rows = csv(&text);
        let _ = input::read(&rows.as_bytes()[..end], &mut |_| ());
    }
}
