// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of each format: they say the same, and what is wrong in one is named with its line.
use crate::common::{fleet, Made};
use plimsoll_columns::{Column, Columns};
use plimsoll_screen::{input, Collector, Options, Screening};
use std::fmt::Write;

fn made() -> Vec<Made> {
    let fleet = fleet().into_iter().enumerate();
    fleet
        .map(|(i, made)| made.pod("shop", &format!("pod{i}")))
        .collect()
}

fn screened(text: &str) -> Screening {
    screened_bytes(text.as_bytes())
}

fn screened_bytes(bytes: &[u8]) -> Screening {
    let mut collector = Collector::new(None);
    input::read(bytes, &mut |series| collector.take(series, None)).expect("sound");
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
fn json_openmetrics_csv_and_parquet_say_the_same() {
    let json: String = made().iter().map(Made::json).collect();
    let text = crate::common::openmetrics(&made());
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
    for (unit, per_s) in [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)] {
        let bytes = table(&csv(&text), per_s).parquet().expect("a table");
        assert_eq!(rows(&screened_bytes(&bytes)), wanted, "Parquet, {unit}");
    }
}

/// A CSV file as a table whose times are whole numbers, so many to a second.
fn table(text: &str, per_s: i64) -> Columns {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head: Vec<String> = reader
        .headers()
        .expect("a head")
        .iter()
        .map(String::from)
        .collect();
    let records: Vec<csv::StringRecord> = reader.records().map(|record| record.expect("sound")).collect();
    let column = |(i, name): (usize, &String)| {
        let cells = records.iter().map(|record| &record[i]);
        let column = match name.as_str() {
            "time" => Column::Integer(
                cells
                    .map(|cell| Some(cell.parse::<i64>().expect("whole seconds") * per_s))
                    .collect(),
            ),
            "value" => Column::Number(cells.map(|cell| cell.parse().ok()).collect()),
            _ => Column::Text(
                cells
                    .map(|cell| Some(cell.into()).filter(|text: &String| !text.is_empty()))
                    .collect(),
            ),
        };
        (name.clone(), column)
    };
    Columns(head.iter().enumerate().map(column).collect())
}

#[test]
fn a_table_that_says_no_samples_is_refused_with_row_and_column() {
    let texts = |text: &str| Column::Text(vec![Some("a".into()), Some(text.into())]);
    let whole = |values: [Option<i64>; 2]| Column::Integer(values.into());
    let sound = || {
        vec![
            ("metric".to_string(), texts("a")),
            ("time".to_string(), whole([Some(1), Some(2)])),
            ("value".to_string(), whole([Some(1), Some(2)])),
        ]
    };
    let refused = |columns: Vec<(String, Column)>| {
        let bytes = Columns(columns).parquet().expect("a table");
        input::read(&bytes, &mut |_| ()).expect_err("no samples")
    };
    let with = |at: usize, column: Column| {
        let mut columns = sound();
        columns[at].1 = column;
        refused(columns)
    };
    assert!(refused(sound()[..2].to_vec()).contains("no column \"value\""));
    assert!(with(1, whole([Some(1), None])).contains("row 2: time; allowed: s, ms, us or ns since 1970"));
    assert!(with(2, texts("x")).contains("row 1: value; allowed: a number"));
    let mut columns = sound();
    columns.push(("pod".into(), whole([Some(1), Some(2)])));
    assert!(refused(columns).contains("column \"pod\": no texts"));
    let mut bytes = Columns(sound()).parquet().expect("a table");
    bytes.truncate(bytes.len() - 9);
    let error = input::read(&bytes, &mut |_| ()).expect_err("half a file");
    assert!(error.contains("not a Parquet file that can be read"), "{error}");
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
    let text = crate::common::openmetrics(&made()[..1]);
    for end in 0..400 {
        let _ = input::read(&text.as_bytes()[..end], &mut |_| ());
        let rows = csv(&text);
        let _ = input::read(&rows.as_bytes()[..end], &mut |_| ());
    }
}
