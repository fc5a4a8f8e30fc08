// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll screen`: which containers of a fleet have wrong CPU limits, from the metrics that it has already.
mod server;

use crate::exit::{Failure, Outcome, Result};
use crate::{number, output};
use plimsoll_report::Table;
use plimsoll_screen::{input, Class, Collector, Left, Metric, Options, Row, Screening};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  plimsoll screen usage.json periods.json throttled.json limits.json requests.json owners.json
          answers of Prometheus' query or query_range, saved by curl
  plimsoll screen --prometheus http://localhost:9090 --last 7d
          the containers of the last week; `kubectl port-forward` makes a server of the cluster local
  plimsoll screen *.json --csv fleet.csv --all
          every row, and all of them in a table to sort";

/// Find the containers of a fleet whose CPU limits are wrong, from its metrics
///
/// Reads what cAdvisor and kube-state-metrics count, and installs nothing. For each container of each workload: what it
/// reserves and uses, how often it is throttled and when, whether burst or more quota would help, and how much of its request is free.
/// What another limit would do comes from a period model of demand with bounds. It is a share of throttled periods, not a
/// latency: for that the ten workloads most worth recording are named.
///
/// Exit code 1: series were damaged or missing. Warnings name them, and the containers that they concern are in the class
/// "unknown".
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    after_long_help = EXAMPLES,
    override_usage = "plimsoll screen [OPTIONS] <FILE>...\n       plimsoll screen [OPTIONS] --prometheus <URL>"
)]
pub struct Args {
    /// Answers of Prometheus' HTTP API as JSON, OpenMetrics text with times, CSV or Parquet: the counters themselves,
    /// without rate(). Several answers in one file are read one after the other
    #[arg(value_name = "FILE", required_unless_present = "prometheus")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    server: server::FromServer,

    /// Count a container as throttled from this share of its periods on, in percent
    #[arg(long, default_value = "1", value_name = "PERCENT", allow_hyphen_values = true, value_parser = number::within(0.01..=100.0))]
    throttled: f64,

    /// Room above what is used in 99% of the time, in percent of it
    #[arg(long, default_value = "15", value_name = "PERCENT", allow_hyphen_values = true, value_parser = number::within(0.0..=1000.0))]
    margin: f64,

    /// What a CPU costs in a month, in any currency; adds a column of what could be saved
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true, value_parser = number::within(0.0..=1e6))]
    price_per_core: Option<f64>,

    /// Print every row, not the first 20 of each class
    #[arg(long)]
    all: bool,

    /// Write the result as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Write every row as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write every row as Parquet, with the same columns
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,

    /// Write a self-contained page: every row, in a table to sort and to filter
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,

    /// Write the advice for Kubernetes into a new folder: for each workload a patch, and a VerticalPodAutoscaler that
    /// only recommends
    #[arg(long, value_name = "FOLDER")]
    patches: Option<PathBuf>,
}

/// Rows of a class on the first screen.
const SHOWN: usize = 20;

/// Of what is worth recording.
const RECORD: usize = 10;

pub fn run(args: &Args) -> Result {
    crate::signals::leave_no_partials();
    output::check(
        &args.files,
        args.json.as_deref(),
        args.csv.iter().chain(&args.parquet).chain(&args.html),
    )?;
    if let Some(folder) = &args.patches {
        check_folder(folder)?;
    }
    let options = Options {
        throttled_share: args.throttled / 100.0,
        margin: args.margin / 100.0,
        price_per_core: args.price_per_core,
        ..Options::default()
    };
    let collector = match args.server.asked() {
        true => server::fetch(&args.server, &options)?,
        false => {
            let mut collector = Collector::new(None);
            for path in &args.files {
                read_file(path, &mut collector)?;
            }
            collector
        }
    };
    let found = collector.finish(&options);
    if found.rows.is_empty() {
        return Err(nothing(&found));
    }
    if let Some(path) = &args.csv {
        output::write(path, plimsoll_screen::write_csv(&found.rows))?;
    }
    if let Some(path) = &args.parquet {
        output::write(path, plimsoll_screen::write_parquet(&found.rows))?;
    }
    if let Some(path) = &args.html {
        output::write(path, plimsoll_screen::html(&found, &commands(&found)))?;
    }
    if let Some(folder) = &args.patches {
        write_patches(folder, &found)?;
    }
    let outcome = match found.faults == Default::default() && !found.incomplete {
        true => Outcome::Done,
        false => Outcome::Missed,
    };
    if !output::json(args.json.as_deref(), || {
        plimsoll_report::text(&plimsoll_screen::Screened::of(&found))
    })? {
        return Ok(outcome);
    }
    let mut text = String::new();
    describe(&mut text, &found, args).expect("writing into memory");
    out!("{text}");
    Ok(outcome)
}

/// Patches of an earlier screening beside the new ones would be applied with them.
fn check_folder(folder: &Path) -> std::result::Result<(), Failure> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::Input(format!(
                "{}: there are files in it; allowed: a new or empty folder",
                folder.display()
            ))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir(folder).map_err(|error| Failure::file("make it", folder, &error))
        }
        Err(error) => Err(Failure::file("read it", folder, &error)),
    }
}

fn write_patches(folder: &Path, found: &Screening) -> std::result::Result<(), Failure> {
    let (patches, left) = plimsoll_screen::patches(found);
    for patch in &patches {
        output::write(&folder.join(&patch.name), &patch.text)?;
    }
    let mut reasons: BTreeMap<&str, Vec<&Left>> = BTreeMap::new();
    for one in &left {
        reasons.entry(one.why).or_default().push(one);
    }
    for (why, all) in reasons {
        let first = all[0];
        let name = format!(
            "{}/{} {}",
            first.workload.namespace, first.workload.name, first.container
        );
        let others = match all.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        errln!("no patch for {name}{others}: {why}");
    }
    Ok(())
}

fn read_file(path: &Path, collector: &mut Collector) -> std::result::Result<(), Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::file("read it", path, &error))?;
    let mut counters_alone = true;
    let said = input::read(&bytes, &mut |series| {
        let name = series.labels.get("__name__");
        counters_alone &= name.and_then(|name| Metric::of(name)).is_some();
        collector.take(series, None);
    })
    .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    // Warnings mean that an answer is not whole.
    let of_settings = !counters_alone || said.series == 0;
    if of_settings && !said.warnings.is_empty() {
        collector.settings_in_part();
    }
    for warning in said.warnings {
        collector.incomplete(format!("{}: the server warned: {warning}", path.display()));
    }
    if said.series == 0 {
        collector.warn(format!("{}: an empty answer", path.display()));
    }
    Ok(())
}

/// No container at all: what was looked for.
fn nothing(found: &Screening) -> Failure {
    let mut text = String::from(
        "no container to screen: no series container_cpu_usage_seconds_total with the labels namespace, pod and container",
    );
    for warning in &found.warnings {
        write!(text, "\n{warning}").expect("writing into memory");
    }
    Failure::Input(text)
}

fn cpus(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or("-".into(), cpus)
}

fn describe(text: &mut String, found: &Screening, args: &Args) -> std::fmt::Result {
    writeln!(text, "{}", found.extent())?;
    let mut head = vec!["class", "rows", "CPUs to free"];
    if found.priced() {
        head.push("saved a month");
    }
    let mut table = Table::new(&head);
    for class in Class::ALL {
        let mut cells = vec![
            class.name().to_string(),
            found.count(class).to_string(),
            format!("{:.1}", found.back_cpus_of(class)),
        ];
        cells.extend(found.saved_a_month(class).map(|saved| format!("{saved:.0}")));
        table.row(cells);
    }
    writeln!(text, "{table}")?;
    for class in Class::ALL {
        let rows: Vec<&Row> = found.of(class).collect();
        // Containers that are fine are counted above.
        let quiet = matches!(class, Class::Fine | Class::NoLimitFine);
        if rows.is_empty() || quiet && !args.all {
            continue;
        }
        let shown = if args.all { rows.len() } else { SHOWN };
        let head = [
            "namespace",
            "workload",
            "container",
            "pods",
            "used",
            "p99",
            "request",
            "limit",
            "throttled",
            "why",
        ];
        let mut table = Table::new(&head).words(3).words_last();
        for row in rows.iter().take(shown) {
            table.row(vec![
                row.workload.namespace.clone(),
                format!("{}/{}", row.workload.kind, row.workload.name),
                row.container.clone(),
                row.pods.to_string(),
                cpus(row.used),
                cpus(row.used_p99),
                or_dash(row.request),
                or_dash(row.limit),
                match row.periods > 0.0 {
                    true => format!("{:.1}%", row.throttled_share * 100.0),
                    false => "-".into(),
                },
                row.reason.clone(),
            ]);
        }
        writeln!(text, "{} (CPUs of one pod)\n{table}", class.name())?;
        if rows.len() > shown {
            writeln!(
                text,
                "  and {} more: --all, --csv, --parquet or --json shows them\n",
                rows.len() - shown
            )?;
        }
    }
    let commands = commands(found);
    if !commands.is_empty() {
        writeln!(
            text,
            "worth recording: a share of throttled periods is not a latency. On the node of the pod, then `plimsoll plan`:"
        )?;
        for command in commands {
            writeln!(text, "  {command}")?;
        }
    }
    if !found.missing.is_empty() {
        writeln!(text, "\nmissing series: {}", found.missing.join(", "))?;
    }
    for warning in &found.warnings {
        writeln!(text, "warning: {warning}")?;
    }
    Ok(())
}

/// What records the workloads most worth it, a line each; none: none is throttled.
fn commands(found: &Screening) -> Vec<String> {
    let rows = found.worth_recording(RECORD).into_iter().map(|row| {
        format!(
            "plimsoll record --cgroup CGROUP --duration 60s -o {}.trace   # {}/{} container {}",
            file_name(&row.workload.name),
            row.workload.namespace,
            row.pod,
            row.container
        )
    });
    let mut lines: Vec<String> = rows.collect();
    if !lines.is_empty() {
        lines.push("# CGROUP: what /proc/PID/cgroup says of a process of the container".into());
    }
    lines
}

/// A name as one word of a shell.
fn file_name(name: &str) -> String {
    name.replace(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c), "_")
}
