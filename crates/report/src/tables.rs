// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports as aligned tables: one run with a row for each subject, two runs side by side.
use crate::figures::{sections, Section, Subject, Value};
use crate::table::Table;
use crate::Run;
use std::fmt::Write;

/// The tables of one run.
pub fn run(run: &Run, per_cpu: bool) -> String {
    let mut text = heading(run);
    for section in sections(run, per_cpu) {
        let figures = &section.subjects[0].figures;
        let mut table = Table::new(&head(section.title, figures.iter().map(|figure| figure.name)));
        table.row(
            head("", figures.iter().map(|figure| figure.unit))
                .iter()
                .map(|cell| cell.to_string())
                .collect(),
        );
        for subject in &section.subjects {
            let values = subject.figures.iter().map(|figure| figure.value.shown());
            table.row(std::iter::once(subject.name.clone()).chain(values).collect());
        }
        write!(text, "\n{table}").expect("writing into memory");
        for subject in &section.subjects {
            if let Some(note) = subject.note {
                writeln!(text, "  {}: {note}", subject.name).expect("writing into memory");
            }
        }
    }
    text
}

fn head<'a>(first: &'a str, others: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    std::iter::once(first).chain(others).collect()
}

fn heading(run: &Run) -> String {
    let mut text = String::new();
    if !run.description.is_empty() {
        writeln!(text, "{}\n", run.description).expect("writing into memory");
    }
    writeln!(text, "{}", terms(run)).expect("writing into memory");
    text
}

/// Under which conditions a run was made, in a line.
fn terms(run: &Run) -> String {
    let mut text = run.scenario.clone();
    for setting in &run.settings {
        write!(text, ", {setting}").expect("writing into memory");
    }
    let ended = match (run.all_exited, run.stop_when_done) {
        (true, true) => ", until every task had ended",
        (true, false) => " (every task had ended before; rates are over all of it)",
        (false, _) => "",
    };
    let seconds = run.measured_ns as f64 / 1e9;
    let warmup = match run.warmup_ns {
        0 => String::new(),
        ns => format!(" after {:.3} s of warm-up", ns as f64 / 1e9),
    };
    let kernel = match (&run.kernel, &run.kernel_taken) {
        (Some(asked), Some(taken)) if asked != taken => format!(", kernel {asked} as {taken}"),
        (Some(asked), _) => format!(", kernel {asked}"),
        (None, _) => String::new(),
    };
    write!(
        text,
        ": machine {} ({} CPUs){kernel}, seed {}, {seconds:.3} s{warmup}{ended}, {} events",
        run.machine, run.nr_cpus, run.seed, run.events
    )
    .expect("writing into memory");
    text
}

/// Two runs side by side: a row for each figure.
pub fn compare(a: &Run, b: &Run, per_cpu: bool) -> String {
    let mut text = String::new();
    let shared = a.description == b.description;
    if shared && !a.description.is_empty() {
        writeln!(text, "{}\n", a.description).expect("writing into memory");
    }
    for run in [a, b] {
        writeln!(text, "{}: {}", run.label, terms(run)).expect("writing into memory");
        if !shared && !run.description.is_empty() {
            writeln!(text, "  {}", run.description.replace('\n', "\n  ")).expect("writing into memory");
        }
    }
    let b_sections = sections(b, per_cpu);
    let a_sections = sections(a, per_cpu);
    for title in titles(&a_sections, &b_sections) {
        let a_section = a_sections.iter().find(|section| section.title == title);
        let b_section = b_sections.iter().find(|section| section.title == title);
        for subject in subjects(a_section, b_section) {
            let mut table = Table::new(&[&format!("{title} {subject}"), &a.label, &b.label, "change"]);
            for row in rows(a_section, b_section, &subject) {
                table.row(row);
            }
            write!(text, "\n{table}").expect("writing into memory");
            for (run, section) in [(a, a_section), (b, b_section)] {
                if let Some(note) = find(section, &subject).and_then(|one| one.note) {
                    writeln!(text, "    {}: {note}", run.label).expect("writing into memory");
                }
            }
        }
    }
    text
}

fn find<'a>(section: Option<&'a Section>, subject: &str) -> Option<&'a Subject> {
    section?.subjects.iter().find(|one| one.name == subject)
}

fn titles(a: &[Section], b: &[Section]) -> Vec<&'static str> {
    let mut titles: Vec<&'static str> = a.iter().map(|section| section.title).collect();
    titles.extend(
        b.iter()
            .map(|section| section.title)
            .filter(|title| a.iter().all(|section| section.title != *title)),
    );
    titles
}

fn subjects(a: Option<&Section>, b: Option<&Section>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for subject in a.into_iter().chain(b).flat_map(|section| &section.subjects) {
        if !names.contains(&subject.name) {
            names.push(subject.name.clone());
        }
    }
    names
}

/// Rows of figures that say something in at least one of the runs.
fn rows(a: Option<&Section>, b: Option<&Section>, subject: &str) -> Vec<Vec<String>> {
    let figures = |section: Option<&Section>| {
        Some(
            find(section, subject)?
                .figures
                .iter()
                .map(|figure| (figure.name, figure.unit, figure.value))
                .collect::<Vec<_>>(),
        )
    };
    let (a, b) = (figures(a), figures(b));
    let list = a.as_ref().or(b.as_ref()).map_or(0, Vec::len);
    (0..list)
        .filter_map(|i| {
            let (name, unit, _) = a.as_ref().or(b.as_ref())?[i];
            let value =
                |list: &Option<Vec<(_, _, Value)>>| list.as_ref().map_or(Value::None, |list| list[i].2);
            let (a, b) = (value(&a), value(&b));
            if a == Value::None && b == Value::None {
                return None;
            }
            let what = if unit.is_empty() {
                name.to_string()
            } else {
                format!("{name}, {unit}")
            };
            Some(vec![format!("  {what}"), a.shown(), b.shown(), change(a, b)])
        })
        .collect()
}

/// By how much a figure changed: in percent of what it was, or as a factor from ten on. Of two that are shown alike it
/// says nothing: what differs is below what they are worth.
pub fn change(a: Value, b: Value) -> String {
    match (a, b) {
        (Value::Number(a, _), Value::Number(b, _)) if a == b => "=".to_string(),
        _ if a.shown() == b.shown() => String::new(),
        (Value::Number(a, _), Value::Number(b, _)) if a > 0.0 && b / a >= 10.0 => {
            format!("{:.1} times", b / a)
        }
        (Value::Number(a, _), Value::Number(b, _)) if a != 0.0 => {
            format!("{:+.1} %", 100.0 * (b - a) / a.abs())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_is_shown_between_figures_that_are_shown_alike() {
        let change = |a, b| change(Value::Number(a, 1), Value::Number(b, 1));
        assert_eq!([change(0.03, 0.02), change(3.0, 3.0)], ["", "="]);
        assert_eq!([change(0.03, 0.06), change(2.0, 1.0)], ["+100.0 %", "-50.0 %"]);
    }
}
