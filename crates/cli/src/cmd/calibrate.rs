//! `plimsoll calibrate`: fits machine models to the training set.
use super::reproduce::inputs;
use crate::exit::{Failure, Outcome, Result};
use crate::table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_reproduce::fit::{fit, rewrite, FITS};
use std::path::PathBuf;

/// Fit the costs of machine models to the training set, and write them into the machine files
///
/// Fitted are: the 20-CPU X6-2 to its hackbench schedstat table, the 224-CPU machine to the columns without the change of
/// its UDP_RR and hackbench tables. Nothing else of the published figures is looked at.
#[derive(clap::Args)]
pub struct Args {
    /// Only this machine. Default: all
    machine: Option<String>,
    /// Directory of the machine files
    #[arg(long, value_name = "DIR", default_value = "machines")]
    machines: PathBuf,
    /// Directory with tables.toml and the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios/published")]
    scenarios: PathBuf,
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the fitted costs as JSON; "-" writes them to the standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result {
    let (rows, index) = inputs(None, &args.scenarios)?;
    let fits: Vec<_> = FITS
        .iter()
        .filter(|fit| args.machine.as_deref().is_none_or(|wanted| wanted == fit.machine))
        .collect();
    if fits.is_empty() {
        let known: Vec<&str> = FITS.iter().map(|fit| fit.machine).collect();
        let wanted = args.machine.as_deref().unwrap_or("");
        return Err(Failure::Input(format!(
            "\"{wanted}\" is not fitted; known: {}",
            known.join(", ")
        )));
    }
    let mut all = Vec::new();
    for one in fits {
        let progress = ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {elapsed}")
                .unwrap_or(ProgressStyle::default_bar()),
        );
        progress.set_message(one.machine);
        let fitted = fit(one, &index, &rows, &args.scenarios, |total| {
            progress.set_length(total);
            progress.inc(1);
        })?;
        progress.finish_and_clear();
        if !args.dry_run {
            for machine in std::iter::once(&one.machine).chain(one.family) {
                let path = args.machines.join(format!("{machine}.toml"));
                let mut text = std::fs::read_to_string(&path)
                    .map_err(|error| Failure::file("read it", &path, &error))?;
                for value in &fitted {
                    let source = format!("plimsoll calibrate, {}: {}", one.machine, one.source);
                    text = rewrite(&text, &value.key, value.after, &source).ok_or_else(|| {
                        Failure::Input(format!("{}: no line for {}", path.display(), value.key))
                    })?;
                }
                std::fs::write(&path, text).map_err(|error| Failure::file("write it", &path, &error))?;
            }
        }
        all.extend(fitted);
    }
    let json = || format!("{:#}\n", serde_json::json!({ "format": 1, "fitted": all }));
    match &args.json {
        Some(path) if path.as_os_str() == "-" => out!("{}", json()),
        Some(path) => {
            std::fs::write(path, json()).map_err(|error| Failure::file("write it", path, &error))?;
        }
        None => {
            let head = [
                "machine",
                "cost",
                "before",
                "after",
                "error before, %",
                "error after, %",
            ];
            let mut table = Table::new(&head);
            for one in &all {
                table.row(vec![
                    one.machine.clone(),
                    one.key.clone(),
                    one.before.to_string(),
                    one.after.to_string(),
                    format!("{:.1}", one.error_before_percent),
                    format!("{:.1}", one.error_after_percent),
                ]);
            }
            out!("{table}");
        }
    }
    Ok(Outcome::Done)
}
