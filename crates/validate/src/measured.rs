// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measured runs of the bandwidth probe: the CSV file, each row with its line.
//!
//! Columns are found by name, in any order; unknown ones are refused: one that is misspelt would not be compared, unseen. A
//! row describes a run by its parameters and holds what was measured; a measured field that is empty, or whose column is
//! missing, is not compared, and a row without any is refused. So is a row with an empty parameter, which is not zero: its
//! run would be another one. So is one that has fewer fields than there are columns: it was cut off.
use crate::rebuild::Scheduler;
use plimsoll_scenario::{nearest, Problem, Problems};
use plimsoll_sim::policy::{BwLimits, BwPart, UNLIMITED};

/// One run: what was set, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Line in the file, from 1.
    pub line: u64,
    pub label: String,
    /// Kernel version as written, such as "6.1".
    pub kernel: String,
    pub rep: u32,
    pub vcpus: u32,
    /// None: no limit (-1 in the file).
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    /// Where period boundaries fall, modulo the period. None: not measured, and the run was not aligned to them.
    pub phase_us: Option<u64>,
    /// Duty threads.
    pub nth: u32,
    pub work_us: u64,
    pub interval_us: u64,
    pub spin: u32,
    pub slow: u32,
    pub pin: bool,
    pub dur_ms: u64,
    pub measured: Measured,
}

/// What the run came to. Latencies are from scheduled release to completion.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    pub cpu_us: Option<f64>,
    pub nr_periods: Option<f64>,
    pub nr_throttled: Option<f64>,
    pub throttled_us: Option<f64>,
    pub nr_bursts: Option<f64>,
    pub burst_us: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
}

/// Reads a file's text. `name` is what errors call it. All that is wrong is reported at once.
pub fn read(name: &str, text: &str, scheduler: Scheduler) -> Result<Vec<Row>, Problems> {
    // The reader counts a line's end at \r, and would name the line before.
    let text = text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let header = match reader.headers() {
        Ok(header) => header.clone(),
        Err(error) => {
            return Err(Problems::one(
                format!("{name}:1"),
                format!("not a CSV file: {error}"),
            ))
        }
    };
    let mut problems = Vec::new();
    for column in REQUIRED {
        if !header.iter().any(|one| one == *column) {
            problems.push(Problem {
                place: format!("{name}:1"),
                path: (*column).to_string(),
                message: "column missing".to_string(),
                at: 0,
            });
        }
    }
    for (place, column) in header.iter().enumerate() {
        if !known().any(|one| one == column) {
            problems.push(Problem {
                place: format!("{name}:1"),
                path: format!("column {}", place + 1),
                message: unknown(column),
                at: 0,
            });
        } else if header.iter().take(place).any(|one| one == column) {
            problems.push(Problem {
                place: format!("{name}:1"),
                path: column.to_string(),
                message: "given twice: allowed is one column of each name".to_string(),
                at: 0,
            });
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        match record {
            Ok(record) => {
                let line = record.position().map_or(0, csv::Position::line);
                if record.len() != header.len() {
                    problems.push(Problem {
                        place: format!("{name}:{line}"),
                        path: String::new(),
                        message: format!(
                            "{} fields: allowed {}, one for each column",
                            record.len(),
                            header.len()
                        ),
                        at: 0,
                    });
                    continue;
                }
                let mut fields = Fields {
                    name,
                    scheduler,
                    line,
                    header: &header,
                    record: &record,
                    problems: &mut problems,
                };
                rows.push(fields.row());
            }
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                problems.push(Problem {
                    place: format!("{name}:{line}"),
                    path: String::new(),
                    message: format!("not a CSV record: {error}"),
                    at: 0,
                });
            }
        }
    }
    if rows.is_empty() && problems.is_empty() {
        return Err(Problems::one(name, "no rows: allowed is one or more"));
    }
    if problems.is_empty() {
        Ok(rows)
    } else {
        Err(Problems(problems))
    }
}

/// Columns that a run cannot be rebuilt without.
const REQUIRED: &[&str] = &[
    "kernel", "vcpus", "label", "quota", "period", "burst", "nth", "work", "interval", "spin", "slow", "pin",
    "dur_ms",
];

/// Those that may be missing.
const OPTIONAL: &[&str] = &["rep", "phase_us"];

/// What was measured and is compared: each row has one of these.
const COMPARED: &[&str] = &[
    "cpu_us",
    "nr_periods",
    "nr_throttled",
    "nr_bursts",
    "burst_usec",
    "p50",
    "p99",
];

/// What else the probe prints. Of these only `throttled_usec` is read, and not judged.
const OTHERS: &[&str] = &["throttled_usec", "bursts", "mean", "p90", "p95", "p999", "max"];

/// The greatest of measured values: the policy's longest time, more than all CPUs of a row in its longest run.
const MEASURED_MOST: f64 = ((1u64 << 44) - 1) as f64;

fn known() -> impl Iterator<Item = &'static str> {
    [REQUIRED, OPTIONAL, COMPARED, OTHERS]
        .into_iter()
        .flatten()
        .copied()
}

fn unknown(column: &str) -> String {
    let hint = nearest(column, known()).map_or(String::new(), |near| format!("; did you mean {near}?"));
    let all: Vec<&str> = known().collect();
    format!("\"{column}\": unknown column{hint}; allowed: {}", all.join(", "))
}

struct Fields<'a> {
    name: &'a str,
    scheduler: Scheduler,
    line: u64,
    header: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
    problems: &'a mut Vec<Problem>,
}

impl Fields<'_> {
    fn text(&self, column: &str) -> Option<&str> {
        let at = self.header.iter().position(|one| one == column)?;
        self.record.get(at).filter(|text| !text.is_empty())
    }

    fn wrong(&mut self, column: &str, message: String) {
        let place = format!("{}:{}", self.name, self.line);
        self.problems.push(Problem {
            place,
            path: column.to_string(),
            message,
            at: 0,
        });
    }

    /// An integer in low ..= high.
    fn integer(&mut self, column: &str, low: i64, high: i64) -> i64 {
        let text = self.text(column).unwrap_or("").to_string();
        match text.parse::<i64>() {
            Ok(value) if (low..=high).contains(&value) => value,
            _ => {
                self.wrong(column, format!("\"{text}\": allowed {low} .. {high}"));
                low
            }
        }
    }

    /// Likewise, of a column that may be missing or empty.
    fn integer_or(&mut self, column: &str, low: i64, high: i64, default: i64) -> i64 {
        match self.text(column) {
            Some(_) => self.integer(column, low, high),
            None => default,
        }
    }

    /// A measured value, or nothing.
    fn measured(&mut self, column: &str) -> Option<f64> {
        let text = self.text(column)?.to_string();
        match text.parse::<f64>() {
            Ok(value) if (0.0..=MEASURED_MOST).contains(&value) => Some(value),
            _ => {
                self.wrong(
                    column,
                    format!("\"{text}\": allowed 0 .. {MEASURED_MOST}, or nothing"),
                );
                None
            }
        }
    }

    fn version(&mut self) -> String {
        let text = self.text("kernel").unwrap_or("").to_string();
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() < 2 || parts.iter().any(|part| part.parse::<u32>().is_err()) {
            self.wrong("kernel", format!("\"{text}\": allowed is a version such as 6.1"));
        }
        text
    }

    /// -1: no limit.
    fn quota(&mut self) -> i64 {
        let text = self.text("quota").unwrap_or("").to_string();
        let allowed = BwLimits::NONE.allowed(BwPart::Quota, false);
        match text.parse::<i64>() {
            Ok(-1) => -1,
            Ok(quota) if u64::try_from(quota).is_ok_and(|quota| allowed.contains(&quota)) => quota,
            _ => {
                let (least, most) = (allowed.start(), allowed.end());
                self.wrong(
                    "quota",
                    format!("\"{text}\": allowed {least} .. {most}, or -1 for no limit"),
                );
                // What else is wrong with the row does not depend on it: it allows the largest burst of all.
                *most as i64 / 2
            }
        }
    }

    fn label(&mut self) -> String {
        let text = self.text("label").unwrap_or("").to_string();
        if text.is_empty() {
            self.wrong("label", "\"\": allowed is any text".to_string());
        }
        text
    }

    fn row(&mut self) -> Row {
        let kernel = self.version();
        let label = self.label();
        let vcpus = self.integer("vcpus", 1, 1024) as u32;
        let rep = self.integer_or("rep", 0, 1_000_000, 1) as u32;
        let quota = self.quota();
        let periods = BwLimits::NONE.allowed(BwPart::Period, false);
        let period_us = self.integer("period", *periods.start() as i64, *periods.end() as i64) as u64;
        // Without a quota there is nothing to save.
        let beside = BwLimits {
            quota_ns: u64::try_from(quota).map_or(UNLIMITED, |us| us * 1000),
            ..BwLimits::NONE
        };
        let bursts = match self.scheduler {
            Scheduler::Kernel if quota < 0 => 0..=0,
            scheduler => beside.allowed(BwPart::Burst, scheduler == Scheduler::Kernel),
        };
        let burst_us = self.integer("burst", *bursts.start() as i64, *bursts.end() as i64) as u64;
        let phase = self.integer_or("phase_us", -1, period_us as i64 - 1, -1);
        let before = self.problems.len();
        let nth = self.integer("nth", 0, 65_536) as u32;
        let spin = self.integer("spin", 0, 65_536) as u32;
        let slow = self.integer("slow", 0, 65_536) as u32;
        if nth + spin + slow == 0 && self.problems.len() == before {
            self.wrong(
                "nth",
                "0, and so are spin and slow: allowed is at least one thread".to_string(),
            );
        }
        let least = i64::from(nth > 0);
        let work_us = self.integer("work", least, 1_000_000_000) as u64;
        let interval_us = self.integer("interval", 1, 1_000_000_000) as u64;
        let pin = self.integer("pin", 0, 1) == 1;
        let dur_ms = self.integer("dur_ms", 1, 3_600_000) as u64;
        let measured = Measured {
            cpu_us: self.measured("cpu_us"),
            nr_periods: self.measured("nr_periods"),
            nr_throttled: self.measured("nr_throttled"),
            throttled_us: self.measured("throttled_usec"),
            nr_bursts: self.measured("nr_bursts"),
            burst_us: self.measured("burst_usec"),
            p50_us: self.measured("p50"),
            p99_us: self.measured("p99"),
        };
        if COMPARED.iter().all(|column| self.text(column).is_none()) {
            let message = format!(
                "nothing was measured: allowed is at least one of {}",
                COMPARED.join(", ")
            );
            self.wrong("", message);
        }
        Row {
            line: self.line,
            label,
            kernel,
            rep,
            vcpus,
            quota_us: u64::try_from(quota).ok(),
            period_us,
            burst_us,
            phase_us: u64::try_from(phase).ok(),
            nth,
            work_us,
            interval_us,
            spin,
            slow,
            pin,
            dur_ms,
            measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "kernel,vcpus,rep,label,quota,period,burst,phase_us,nth,work,interval,spin,slow,pin,dur_ms,cpu_us";

    fn problems(row: &str) -> String {
        read("m.csv", &format!("{HEADER}\n{row}\n"), Scheduler::Kernel)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_row_is_read_by_column_name() {
        let text =
            "dur_ms,label,kernel,vcpus,quota,period,burst,phase_us,nth,work,interval,spin,slow,pin,mean,p50\n\
                    2000,x,6.1,4,-1,100000,0,,2,40000,200000,0,0,1,?,7\n";
        let rows = read("m.csv", text, Scheduler::Kernel).unwrap();
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!(
            (row.line, row.vcpus, row.quota_us, row.phase_us),
            (2, 4, None, None)
        );
        assert_eq!(
            (row.nth, row.work_us, row.pin, row.dur_ms),
            (2, 40_000, true, 2000)
        );
        let only_p50 = Measured {
            p50_us: Some(7.0),
            ..Measured::default()
        };
        assert_eq!(row.measured, only_p50);
    }

    #[test]
    fn a_bad_value_is_named_with_line_column_value_and_range() {
        let good = "6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1";
        assert!(read("m.csv", &format!("{HEADER}\n{good}\n"), Scheduler::Kernel).is_ok());
        assert_eq!(
            problems("6.1,0,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1"),
            "m.csv:2: vcpus: \"0\": allowed 1 .. 1024"
        );
        assert_eq!(
            problems("6.1,4,1,a,50000,100000,60000,47,0,0,100000,1,0,0,2000,1"),
            "m.csv:2: burst: \"60000\": allowed 0 .. 50000"
        );
        assert_eq!(
            problems("6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,x"),
            "m.csv:2: cpu_us: \"x\": allowed 0 .. 17592186044415, or nothing"
        );
        // Its tolerance would be infinite, and anything within it.
        assert_eq!(
            problems("6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1e308"),
            "m.csv:2: cpu_us: \"1e308\": allowed 0 .. 17592186044415, or nothing"
        );
        assert_eq!(
            problems("new,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1"),
            "m.csv:2: kernel: \"new\": allowed is a version such as 6.1"
        );
        assert_eq!(
            problems("6.1,4,1,a,5,100000,0,47,0,0,100000,1,0,0,2000,1")
                .lines()
                .count(),
            1
        );
    }

    #[test]
    fn an_empty_parameter_is_refused_and_is_no_zero() {
        let columns: Vec<&str> = HEADER.split(',').collect();
        let good: Vec<&str> = "6.1,4,1,a,50000,100000,0,47,2,40000,200000,1,0,0,2000,1"
            .split(',')
            .collect();
        for (at, column) in columns
            .iter()
            .enumerate()
            .filter(|(_, column)| REQUIRED.contains(*column))
        {
            let mut row = good.clone();
            row[at] = "";
            let said = problems(&row.join(","));
            assert!(
                said.starts_with(&format!("m.csv:2: {column}: \"\": allowed ")),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let mut row = good;
        row[8] = "";
        row[11] = "0";
        assert_eq!(problems(&row.join(",")), "m.csv:2: nth: \"\": allowed 0 .. 65536");
        // What may be missing as a column may be empty in a row.
        let row = "6.1,4,,a,50000,100000,0,,2,40000,200000,1,0,0,2000,1";
        let rows = read("m.csv", &format!("{HEADER}\n{row}\n"), Scheduler::Kernel).unwrap();
        assert_eq!((rows[0].rep, rows[0].phase_us), (1, None));
    }

    #[test]
    fn lines_are_counted_alike_however_they_end() {
        let text = format!("{HEADER}\r\n6.1,0,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1\r\n");
        let error = read("m.csv", &text, Scheduler::Kernel).unwrap_err();
        assert!(error.to_string().starts_with("m.csv:2: vcpus"), "{error}");
    }

    #[test]
    fn a_quota_that_is_none_is_named_with_what_is_allowed() {
        for quota in ["", "max", "-5", "0", "999", "50000.5", "17592186044416"] {
            assert_eq!(
                problems(&format!("6.1,4,1,a,{quota},100000,0,47,0,0,100000,1,0,0,2000,1")),
                format!("m.csv:2: quota: \"{quota}\": allowed 1000 .. 17592186044415, or -1 for no limit")
            );
        }
    }

    #[test]
    fn a_row_with_nothing_to_compare_is_refused() {
        let parameters = "6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000";
        let nothing =
            "m.csv:2: nothing was measured: allowed is at least one of cpu_us, nr_periods, nr_throttled, \
                       nr_bursts, burst_usec, p50, p99";
        assert_eq!(problems(&format!("{parameters},")), nothing);
        let header = HEADER.replace(",cpu_us", "");
        // A column that is not judged is nothing to compare.
        for (more, value) in [("", ""), (",throttled_usec", ",5")] {
            let text = format!("{header}{more}\n{parameters}{value}\n");
            let error = read("m.csv", &text, Scheduler::Kernel).unwrap_err();
            assert_eq!(error.to_string(), nothing);
        }
    }

    #[test]
    fn a_column_that_is_not_known_is_refused_with_the_one_that_was_meant() {
        let row = "6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000,1";
        for (wrong, said) in [
            (
                "nr_throtled",
                "\"nr_throtled\": unknown column; did you mean nr_throttled?; allowed: kernel, ",
            ),
            ("", "\"\": unknown column; allowed: kernel, "),
        ] {
            let text = format!("{HEADER},{wrong}\n{row},3\n");
            let error = read("m.csv", &text, Scheduler::Kernel).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("m.csv:1: column 17: {said}")),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_column_given_twice_is_refused() {
        let text = read("m.csv", &format!("{HEADER},quota\n"), Scheduler::Kernel)
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "m.csv:1: quota: given twice: allowed is one column of each name"
        );
    }

    #[test]
    fn a_row_that_is_cut_off_is_refused() {
        let cut = "6.1,4,1,a,50000,100000,0,47,0,0,100000,1,0,0,2000";
        assert_eq!(
            problems(cut),
            "m.csv:2: 15 fields: allowed 16, one for each column"
        );
        assert_eq!(
            problems(&format!("{cut},1,1")),
            "m.csv:2: 17 fields: allowed 16, one for each column"
        );
    }

    #[test]
    fn missing_columns_are_all_named() {
        let text = read("m.csv", "kernel,vcpus\n6.1,4\n", Scheduler::Kernel)
            .unwrap_err()
            .to_string();
        assert_eq!(text.lines().count(), REQUIRED.len() - 2, "{text}");
    }
}
