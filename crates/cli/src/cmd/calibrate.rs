// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `plimsoll calibrate`: fits machine models to the training set.
use super::reproduce::inputs;
use crate::exit::{Failure, Outcome, Result};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_report::Table;
use plimsoll_reproduce::fit::{self, fit, rewrite, Fit, Fitted, FITS};
use std::path::{Path, PathBuf};

/// Fit the costs of machine models to the training set, and write them into the machine files
///
/// Fitted are: the 20-CPU X6-2 to its hackbench schedstat table, the 224-CPU machine to UDP_RR without the change at 25
/// and 50% of CPUs, the web server to headroom 30% at load 1.0. No other published figure is read.
#[derive(clap::Args)]
pub struct Args {
    /// Only this machine. Default: all
    machine: Option<String>,
    /// Directory of the machine files, which are read and rewritten
    #[arg(long, value_name = "DIR", default_value = "machines")]
    machines: PathBuf,
    /// Directory with tables.toml and the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios/published")]
    scenarios: PathBuf,
    /// Print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the fitted costs as JSON; without FILE, or with "-", to the standard output instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
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
    let machines = args.machines.canonicalize();
    let machines = machines.map_err(|error| Failure::file("find it", &args.machines, &error))?;
    let files = MachineFiles { dir: &args.machines };
    for fit in &fits {
        files.check(fit)?;
    }
    let ready = fits
        .iter()
        .map(|one| fit::read(one, &index, &rows, &args.scenarios, &machines))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let mut inputs = vec![args.scenarios.join("tables.toml")];
    inputs.extend(fits.iter().flat_map(|fit| files.paths(fit)));
    inputs.extend(ready.iter().flat_map(|one| one.files.clone()));
    output::check(&inputs, args.json.as_deref(), [])?;
    let mut all = Vec::new();
    let mut texts = Vec::new();
    for one in &ready {
        let progress = ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {elapsed}")
                .unwrap_or(ProgressStyle::default_bar()),
        );
        progress.set_message(one.fit.machine);
        let fitted = fit(one, |total| {
            progress.set_length(total);
            progress.inc(1);
        })?;
        progress.finish_and_clear();
        texts.extend(files.rewritten(one.fit, &fitted)?);
        all.extend(fitted);
    }
    // When all of them are there: a fit that fails leaves no half of the machines fitted.
    for (path, text) in texts.iter().filter(|_| !args.dry_run) {
        output::write(path, text)?;
    }
    let json = || format!("{:#}\n", serde_json::json!({ "format": 1, "fitted": all }));
    if output::json(args.json.as_deref(), json)? {
        out!("{}", table(&all));
    }
    Ok(Outcome::Done)
}

/// Where the fitted costs go.
struct MachineFiles<'a> {
    dir: &'a Path,
}

impl MachineFiles<'_> {
    /// Of the machine and its family.
    fn paths<'a>(&'a self, fit: &'a Fit) -> impl Iterator<Item = PathBuf> + 'a {
        let machines = std::iter::once(&fit.machine).chain(fit.family);
        machines.map(|machine| self.dir.join(format!("{machine}.toml")))
    }

    /// Asks before minutes of fitting whether there will be a line for each cost.
    fn check(&self, fit: &Fit) -> std::result::Result<(), Failure> {
        for path in self.paths(fit) {
            let text = read(&path)?;
            for parameter in fit.parameters {
                put(&path, &text, parameter.key, 0, "")?;
            }
            output::check([], None, [&path])?;
        }
        Ok(())
    }

    /// Their text with what was fitted.
    fn rewritten(
        &self,
        fit: &Fit,
        fitted: &[Fitted],
    ) -> std::result::Result<Vec<(PathBuf, String)>, Failure> {
        let rewritten = self.paths(fit).map(|path| {
            let mut text = read(&path)?;
            for value in fitted {
                text = put(&path, &text, &value.key, value.after, &fit.says())?;
            }
            Ok((path, text))
        });
        rewritten.collect()
    }
}

fn read(path: &Path) -> std::result::Result<String, Failure> {
    plimsoll_scenario::find::text(path).map_err(|error| Failure::file("read it", path, &error))
}

fn put(path: &Path, text: &str, key: &str, value: u64, source: &str) -> std::result::Result<String, Failure> {
    rewrite(text, key, value, source)
        .ok_or_else(|| Failure::Input(format!("{}: no line for {key}", path.display())))
}

fn table(all: &[Fitted]) -> Table {
    let mut table = Table::new(&[
        "machine",
        "cost",
        "before",
        "after",
        "error before, %",
        "error after, %",
    ]);
    for one in all {
        table.row(vec![
            one.machine.clone(),
            one.key.clone(),
            one.before.to_string(),
            one.after.to_string(),
            format!("{:.1}", one.error_before_percent),
            format!("{:.1}", one.error_after_percent),
        ]);
    }
    table
}
