// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll reproduce`: the published tables again, published against simulated.
use crate::exit::{Failure, Outcome as End, Result};
use crate::{number, output};
use clap::builder::NonEmptyStringValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_report::Table;
use plimsoll_reproduce::run::Work;
use plimsoll_reproduce::{html, published, shown, Index, Made, Outcome, Row, Summary, Verdict};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// In the source tree.
const SCENARIOS: &str = "scenarios/published";

/// Simulate the published tables and print published against simulated
///
/// Baseline and change run on the same simulated machine, with one switch flipped. Machine models are fitted to a stated
/// training set only (plimsoll calibrate); every other row is a prediction. Exit code 1 when a target is missed or, of rows
/// that no target bears on, when one lies outside its own tolerance.
#[derive(clap::Args)]
pub struct Args {
    /// Only this table, such as 001-x6-1x10, or all tables whose name begins so. Default: all
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: Option<String>,
    /// Seeds for each row
    #[arg(long, default_value_t = 10, allow_hyphen_values = true, value_parser = number::within(1..=1000_u64))]
    seeds: u64,
    /// Published figures, in the form of scenarios/published/results.csv, which is the default
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Directory with tables.toml and the scenarios
    #[arg(long, value_name = "DIR", default_value = SCENARIOS)]
    scenarios: PathBuf,
    /// Change a value in every scenario, as in duration_ms=50; may be repeated. Not the seed, and nothing that a row's
    /// base and change differ in
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Write the results as JSON; without FILE, or with "-", to the standard output instead of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write a page of plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write every row as a table in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The published rows and the index of scenarios.
pub fn inputs(published: Option<&Path>, scenarios: &Path) -> std::result::Result<(Vec<Row>, Index), Failure> {
    let (name, text) = match published {
        Some(path) => (path.display().to_string(), read(path)?),
        None => (
            "scenarios/published/results.csv".to_string(),
            published::EMBEDDED.to_string(),
        ),
    };
    let rows = published::read(&name, &text)?;
    let path = scenarios.join("tables.toml");
    let text = plimsoll_scenario::find::text(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Input(format!(
            "{}: cannot read it: {error}; --scenarios DIR is scenarios/published of the source tree",
            path.display()
        )),
        _ => Failure::file("read it", &path, &error),
    })?;
    let index = Index::read(&path.display().to_string(), &text, &rows)?;
    Ok((rows, index))
}

fn read(path: &Path) -> std::result::Result<String, Failure> {
    plimsoll_scenario::find::text(path).map_err(|error| Failure::file("read it", path, &error))
}

pub fn run(args: &Args) -> Result {
    let of_seed = |text: &&String| text.split('=').next().is_some_and(|key| key.trim() == "seed");
    if let Some(text) = args.settings.iter().find(of_seed) {
        let message = format!("--set {text}: each row runs with seeds 1 .. --seeds; allowed are other keys");
        return Err(Failure::Input(message));
    }
    crate::signals::leave_no_partials();
    let mut files: Vec<PathBuf> = args.published.iter().cloned().collect();
    files.push(args.scenarios.join("tables.toml"));
    let check = |files: &[PathBuf]| {
        let pages = args.html.iter().chain(&args.markdown);
        output::check(files, args.json.as_deref(), pages)
    };
    check(&files)?;
    let (all, index) = inputs(args.published.as_deref(), &args.scenarios)?;
    let wanted = args.table.as_deref().unwrap_or("");
    let rows: Vec<&Row> = all.iter().filter(|row| row.table.starts_with(wanted)).collect();
    if rows.is_empty() {
        let known: Vec<&str> = index.table.iter().map(|table| table.name.as_str()).collect();
        return Err(Failure::Input(format!(
            "no table \"{wanted}\"; known: {}",
            known.join(", ")
        )));
    }
    let work = Work::plan(&index, &rows, &args.scenarios, &args.settings, args.seeds)?;
    check(&work.files(&args.scenarios))?;
    let progress = ProgressBar::new(work.runs()).with_style(
        ProgressStyle::with_template("{pos}/{len} runs {bar:10} {elapsed} of about {duration}  {wide_msg}")
            .unwrap_or(ProgressStyle::default_bar()),
    );
    let measured = work.run(|scenario| {
        progress.set_message(scenario.to_string());
        progress.inc(1);
    })?;
    progress.finish_and_clear();
    let outcomes: Vec<Outcome> = rows
        .iter()
        .map(|row| Outcome::of(row, &index, &measured))
        .collect();
    let summary = Summary::of(&outcomes, &rows, &index, &measured);
    let about: Vec<(String, String)> = index
        .table
        .iter()
        .map(|table| (table.name.clone(), table.about.clone()))
        .collect();
    let made = Made {
        plimsoll: env!("CARGO_PKG_VERSION"),
        tables: args.table.clone(),
        published: args.published.as_ref().map(|path| path.display().to_string()),
        scenarios: (args.scenarios != Path::new(SCENARIOS)).then(|| args.scenarios.display().to_string()),
        seeds: args.seeds,
        settings: args.settings.clone(),
    };
    if let Some(path) = &args.html {
        output::write(path, html::page(&outcomes, &summary, &about, &made))?;
    }
    if let Some(path) = &args.markdown {
        output::write(path, markdown(&outcomes, &about, &made))?;
    }
    if output::json(args.json.as_deref(), || json(&outcomes, &summary, &made))? {
        print_all(&outcomes, &summary, &about, &made);
    }
    Ok(if summary.met() { End::Done } else { End::Missed })
}

fn json(outcomes: &[Outcome], summary: &Summary, made: &Made) -> String {
    let mut value = serde_json::json!({ "format": 1, "rows": outcomes, "summary": summary });
    if let (serde_json::Value::Object(all), Ok(serde_json::Value::Object(made))) =
        (&mut value, serde_json::to_value(made))
    {
        all.extend(made);
    }
    format!("{value:#}\n")
}

fn print_all(outcomes: &[Outcome], summary: &Summary, about: &[(String, String)], made: &Made) {
    let mut out = format!("plimsoll {}: {}\n", made.plimsoll, made.command());
    if !made.settings.is_empty() {
        let _ = writeln!(out, "{}", made.warning());
    }
    out.push('\n');
    for (name, about) in about {
        let rows: Vec<&Outcome> = outcomes.iter().filter(|one| one.table == *name).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{name}: {about}");
        let mut table = Table::new(&["row", "metric", "published", "simulated", "error", "verdict"])
            .words(2)
            .words_last();
        for one in &rows {
            table.row(cells(one));
        }
        let _ = writeln!(out, "{table}");
    }
    let mut table = Table::new(&["target", "result", "wanted", ""]).words(3);
    for target in &summary.targets {
        let word = if target.met { "met" } else { "MISSED" };
        table.row(vec![
            target.name.clone(),
            target.result.clone(),
            target.wanted.clone(),
            word.to_string(),
        ]);
    }
    let _ = writeln!(
        out,
        "{} row{}: {} within tolerance, {} right direction, {} wrong, {} not simulated",
        summary.rows,
        if summary.rows == 1 { "" } else { "s" },
        summary.within,
        summary.right_direction,
        summary.wrong,
        summary.not_simulated
    );
    if !table.is_empty() {
        let _ = write!(out, "\n{table}");
    }
    out!("{out}");
}

fn cells(one: &Outcome) -> Vec<String> {
    let first = one.parameters.split(';').next().unwrap_or("").trim();
    let mut row = one.workload.clone();
    if !first.is_empty() && !row.contains(first) {
        row = format!("{row}, {first}");
    }
    if row.chars().count() > 60 {
        row = row.chars().take(59).collect::<String>() + "…";
    }
    let published = match (one.by_value, one.published_change_percent) {
        (false, Some(change)) => format!("{change:+.1}%"),
        (_, _) if one.published_new.is_empty() => one.published_base.clone(),
        (_, _) if one.published_base.is_empty() => one.published_new.clone(),
        _ => format!("{} -> {}", one.published_base, one.published_new),
    };
    let values = || -> String {
        let sides = [one.simulated_base, one.simulated_new];
        sides
            .iter()
            .flatten()
            .map(|spread| figure(spread.mean))
            .collect::<Vec<_>>()
            .join(" -> ")
    };
    let simulated = match (one.by_value, one.simulated_change_percent) {
        (false, Some(change)) => change.percent(),
        _ => values(),
    };
    let mut verdict = one.verdict.words().to_string();
    if one.training {
        verdict += " (training)";
    }
    if let (Verdict::NotSimulated, Some(reason)) = (one.verdict, &one.remark) {
        verdict = format!("not simulated: {reason}");
    }
    vec![
        row,
        one.metric_in(),
        published,
        simulated,
        one.error_shown(),
        verdict,
    ]
}

fn figure(value: f64) -> String {
    shown(value, |value| match value.abs() {
        a if a >= 1000.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    })
}

fn markdown(outcomes: &[Outcome], about: &[(String, String)], made: &Made) -> String {
    let rows = made.rows();
    let (first, rest) = rows.split_at(1);
    let mut out = format!(
        "# {}{rest}, and what is simulated\n\nMade by plimsoll {}: `{} --markdown FILE`; [reproduction.md](reproduction.md) \
         says what it means. Simulated: mean ± standard deviation over {} seeds.\n",
        first.to_uppercase(),
        made.plimsoll,
        made.command(),
        made.seeds
    );
    if !made.settings.is_empty() {
        let _ = writeln!(out, "\n**{}**", made.warning());
    }
    for (name, about) in about {
        let rows: Vec<&Outcome> = outcomes.iter().filter(|one| one.table == *name).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n## {name}\n\n{about}.\n\n| row | metric | published | simulated | error | verdict |\n|---|---|---|---|---|---|");
        for one in rows {
            let mut cells = cells(one);
            if let (Some(remark), true) = (&one.remark, one.verdict != Verdict::NotSimulated) {
                cells[5] += &format!("; {remark}");
            }
            let _ = writeln!(
                out,
                "| {} |",
                cells
                    .iter()
                    .map(|cell| cell.replace('|', "/"))
                    .collect::<Vec<_>>()
                    .join(" | ")
            );
        }
    }
    out
}
