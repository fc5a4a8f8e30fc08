// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one screen of a plan: what was recorded, whether it is to be trusted, what to do, what that saves, what may go wrong.
//! At most 25 lines of 100 columns for a plan without warnings.
use super::{lack, room, Shown};
use plimsoll_plan::{
    figure, range_cell, said_of_runtimes, Candidate, Limits, Subject, Target, Verdict, WaitingForOthers,
};
use plimsoll_report::Table;
use std::fmt::Write;

const COLUMNS: usize = 100;
const INDENT: usize = 10;

/// Paragraphs with a label before them.
struct Screen {
    text: String,
}

impl Screen {
    /// A sentence or several, wrapped.
    fn say(&mut self, label: &str, words: &str) {
        let mut line = format!("{label:INDENT$}");
        for word in words.split(' ').filter(|w| !w.is_empty()) {
            let fits = line.chars().count() + word.chars().count() < COLUMNS;
            if !fits {
                writeln!(self.text, "{}", line.trim_end()).expect("writing into memory");
                line = " ".repeat(INDENT);
            }
            line += word;
            line.push(' ');
        }
        writeln!(self.text, "{}", line.trim_end()).expect("writing into memory");
    }

    /// A line that is pasted: not wrapped.
    fn paste(&mut self, line: &str) {
        writeln!(self.text, "{:INDENT$}{line}", "").expect("writing into memory");
    }
}

pub(super) fn screen(shown: &Shown) -> String {
    let mut screen = Screen { text: String::new() };
    screen.say("recorded", &recorded(shown));
    screen.say("trust", &trust(shown));
    for warning in &shown.warnings {
        screen.say("warning", warning);
    }
    if let Some(waiting) = &shown.waiting {
        screen.say("others", &others(waiting));
    }
    screen.say("goals", &goals(shown));
    match shown.answer.holds() {
        true => screen.say("do", &what_to_do(shown)),
        false => screen.say("do", &instead(shown)),
    }
    for line in to_paste(shown) {
        screen.paste(&line);
    }
    screen.text += &format!("\n{}\n", table(shown));
    if shown.answer.holds() {
        screen.say("saves", &saves(shown));
    }
    screen.say("risks", &risks(shown));
    if !shown.verbose {
        screen.say(
            "more",
            "--verbose: what was found in the trace, all ranges, the frontier, settings for every system; --html FILE: a page",
        );
    }
    screen.text
}

/// A share of the group's CPU time that is worth a sentence.
const RECORDER_SAID: f64 = 0.03;

fn recorded(shown: &Shown) -> String {
    let sources = &shown.recordings.sources;
    let source = shown.recordings.median();
    let program = &source.program;
    let seconds: f64 = sources.iter().map(|s| s.program.duration_ns as f64 / 1e9).sum();
    let count = match sources.len() {
        1 => "1 recording".to_string(),
        n => format!("{n} recordings"),
    };
    let request = source.definition();
    let kind = match (program.is_job(), program.is_closed_loop()) {
        (true, _) => "a job that has to be finished",
        (_, true) => "closed loop: most work is done for clients that wait",
        (_, false) => "open loop: arrivals do not wait for answers",
    };
    let members: Vec<&str> = program.members().map(plimsoll_replay::Group::name).collect();
    let of = match members.len() {
        0 | 1 => String::new(),
        n => format!(" ({n} groups as one: {})", members.join(", ")),
    };
    let (requests, kind) = match shown.recordings.requests(None) {
        0 => ("no requests".into(), String::new()),
        count => (format!("{count} requests ({request})"), format!("; {kind}")),
    };
    let recorder = match program.recorder_share() {
        share if share < RECORDER_SAID => String::new(),
        share => format!(
            " {:.0}% of that CPU time was the recorder's: what is foretold is without it.",
            100.0 * share
        ),
    };
    format!(
        "{}{of}: {seconds:.1} s in {count}, {} CPUs, {requests}, {} CPUs used{kind}.{recorder}",
        source.target_path(),
        source.machine.topology.nr_cpus(),
        figure(program.groups[program.target as usize].work_ns as f64 / program.duration_ns.max(1) as f64),
    )
}

fn trust(shown: &Shown) -> String {
    let mut said = Vec::new();
    let failed = || {
        shown
            .recordings
            .sources
            .iter()
            .zip(&shown.answer.checks)
            .filter(|(_, c)| !c.holds())
    };
    for (source, check) in failed() {
        said.push(format!(
            "NO: the replay of {} does not show what was recorded: {}. Do not rely on this plan.",
            source.file,
            check.missed()
        ));
    }
    if said.is_empty() {
        let median = &shown.answer.checks[shown.recordings.median];
        let held: Vec<String> = median
            .checks
            .iter()
            .filter(|c| c.tolerance.is_some())
            .map(|c| format!("{} {:+.1}%", c.name, c.difference() * 100.0))
            .collect();
        said.push(format!(
            "yes: the replay under the recorded settings shows what was recorded ({}).",
            held.join(", ")
        ));
    }
    let doubts: usize = shown.recordings.sources.iter().map(|s| s.warnings.len()).sum();
    match doubts {
        0 => {}
        1 => said.push("There is a doubt about a trace: see --verbose.".into()),
        _ => said.push(format!(
            "There are {doubts} doubts about the traces: see --verbose."
        )),
    }
    said.join(" ")
}

fn others(waiting: &WaitingForOthers) -> String {
    let ms = |ns: u64| figure(ns as f64 / 1e6);
    format!(
        "the rest of the machine took {} CPUs. Without any limit {} is {} ms beside it, and {} ms without it: {:.0}% is waiting \
         for others, which no limit of this service cures; its weight may.",
        figure(waiting.cpus),
        waiting.what,
        ms(waiting.beside_ns),
        ms(waiting.alone_ns),
        100.0 * waiting.share(),
    )
}

fn goals(shown: &Shown) -> String {
    let mut text = shown.answer.plan.goals.join(", ");
    if shown.answer.throttled_goal_is_default {
        text += " (the last by default)";
    }
    text
}

/// A limit in CPUs, and as it is set.
fn limit(limits: &Limits) -> String {
    let Some(quota_us) = limits.quota_us else {
        return match (limits.weight, limits.headroom_percent) {
            (100, 0) => "no limit".into(),
            _ => limits.to_string(),
        };
    };
    let burst = match limits.burst_us {
        0 => String::new(),
        us => format!(", burst {} ms", us as f64 / 1e3),
    };
    format!(
        "{} of {} ms{burst}",
        quota_us as f64 / 1e3,
        limits.period_us as f64 / 1e3
    )
}

/// The same as narrow as a column has to be, in ms.
fn cell(limits: &Limits) -> String {
    let ms = |us: u64| us as f64 / 1e3;
    match (limits.quota_us, limits.burst_us) {
        (None, _) => limit(limits),
        (Some(quota_us), 0) => format!("{}/{}", ms(quota_us), ms(limits.period_us)),
        (Some(quota_us), burst_us) => {
            format!(
                "{}/{}, burst {}",
                ms(quota_us),
                ms(limits.period_us),
                ms(burst_us)
            )
        }
    }
}

/// What a candidate makes of the goals, in a word or two; the tables of --verbose say it in full.
fn state(c: &Candidate) -> &'static str {
    match (c.meets, c.meets_costly) {
        (true, true) => "met",
        (true, false) => "mostly",
        (false, _) if c.too_little_cpu => "too little",
        (false, _) if c.loses_throughput => "fewer req",
        (false, _) => "missed",
    }
}

fn what_to_do(shown: &Shown) -> String {
    let c = &shown.answer.plan.recommended;
    let how = match shown.answer.plan.verdict {
        Verdict::Met => format!(
            "It meets the goals in nine of ten runs ({}).",
            room(c.margin_costly, "")
        ),
        Verdict::MetNarrowly => format!(
            "It meets the goals as recorded, but not in nine of ten runs ({}).",
            room(
                c.margin_costly,
                lack(c.too_little_cpu_costly, c.loses_throughput_costly)
            )
        ),
        Verdict::NotMet => format!(
            "nothing. None of {} settings meets the goals; the nearest, {}, does not ({}).",
            shown.answer.plan.tried,
            limit(&c.limits),
            room(c.margin, lack(c.too_little_cpu, c.loses_throughput))
        ),
    };
    match (shown.answer.plan.verdict, c.limits.quota_us) {
        (Verdict::NotMet, _) => how,
        (_, None) => format!("no limit is best (requests only): {}. {how}", limit(&c.limits)),
        (_, Some(_)) => format!(
            "limit {} to {} CPUs: {}. {how}",
            shown.answer.plan.group,
            figure(c.reserved_cpus),
            limit(&c.limits)
        ),
    }
}

/// What to do where the replay is not to be believed: no limit is offered.
fn instead(shown: &Shown) -> String {
    let used = shown.answer.plan.today.cpus;
    format!(
        "nothing yet: a limit that comes from a replay which is off is a guess, so there is none to paste. Record again, \
         longer and with less other work on the machine. If that fails as well, try by hand on one node, from a limit \
         of {} CPUs on (twice what was used), and look at the service's own p99; plimsoll explain says what throttles it.",
        figure(2.0 * used)
    )
}

/// The shortest way to set it on the target.
fn to_paste(shown: &Shown) -> Vec<String> {
    if shown.answer.plan.verdict == Verdict::NotMet {
        return Vec::new();
    }
    let version_1 = shown.recordings.median().recorded_on.cgroup_version == Some(1);
    let wanted = |system: &str| match shown.answer.target {
        Target::Cgroup => (system == "cgroup v1") == version_1,
        _ => true,
    };
    let mut own = shown
        .settings
        .iter()
        .filter(|p| p.is_for(shown.answer.target) && wanted(p.system));
    // Kubernetes' text goes on with the template and more: --verbose.
    let first = |line: &&str| !line.starts_with("# its template");
    let lines = own
        .next()
        .map(|paste| paste.text.lines().take_while(first).map(String::from).collect());
    lines.unwrap_or_default()
}

fn table(shown: &Shown) -> Table {
    let goals = &shown.answer.options.goals;
    let by = goals.iter().position(|g| g.subject != Subject::Throttled);
    let name = by.map_or("p99".into(), |ix| goals[ix].subject.to_string());
    let name = name.trim_end_matches("(request)");
    let (value_title, range_title) = (format!("{name} ms"), "range ms");
    let head = [
        "",
        "limit, ms",
        "CPUs",
        "req/s",
        value_title.as_str(),
        range_title,
        "throttled",
        "goals",
    ];
    let mut table = Table::new(&head).words(2).words_last();
    let mut row = |name: &str, c: &Candidate| {
        let value = by.map_or(c.p99_ns, |ix| c.values[ix]);
        let range = match by {
            None => c.p99_range,
            Some(ix) => c.ranges.as_ref().and_then(|all| all[ix]),
        };
        table.row(vec![
            name.into(),
            cell(&c.limits),
            short(c.reserved_cpus),
            short(c.rate),
            value.map_or("-".into(), |ns| short(ns / 1e6)),
            range_cell(range, 1e-6, short),
            format!("{:.1}%", c.throttled * 100.0),
            state(c).into(),
        ]);
    };
    let called = if shown.answer.holds() {
        shown.answer.plan.called()
    } else {
        "replayed best"
    };
    row(called, &shown.answer.plan.recommended);
    for (name, other) in shown.answer.others() {
        row(name, &other.recommended);
    }
    if let Some(cheaper) = &shown.answer.plan.next_cheaper {
        row("next cheaper", cheaper);
    }
    row("today", &shown.answer.plan.today);
    table
}

/// Three significant digits.
fn short(value: f64) -> String {
    let whole = value.abs().log10().floor();
    let decimals = if value == 0.0 {
        0.0
    } else {
        (2.0 - whole).clamp(0.0, 6.0)
    };
    format!("{value:.*}", decimals as usize)
}

fn saves(shown: &Shown) -> String {
    let (own, today) = (&shown.answer.plan.recommended, &shown.answer.plan.today);
    let machine = f64::from(shown.recordings.median().machine.topology.nr_cpus());
    let mut said = match (own.limits.quota_us, today.limits.quota_us) {
        (None, None) => "nothing: there is no limit today either.".into(),
        (None, Some(_)) => format!(
            "nothing: today's limit of {} CPUs goes.",
            figure(today.reserved_cpus)
        ),
        (Some(_), None) => format!(
            "the service can take {} of {machine} CPUs at most, where nothing holds it back today.",
            figure(own.reserved_cpus)
        ),
        (Some(_), Some(_)) => {
            let less = today.reserved_cpus - own.reserved_cpus;
            match less > 0.0 {
                true => format!(
                    "{} of today's {} CPUs ({:.0}%).",
                    figure(less),
                    figure(today.reserved_cpus),
                    100.0 * less / today.reserved_cpus
                ),
                false => format!("nothing: it takes {} CPUs more than today.", figure(-less)),
            }
        }
    };
    let requests = format!(
        " Requests alone, without a limit, are {} CPUs",
        figure(shown.answer.request_cpus())
    );
    if let Some(price) = shown.price {
        let costs = |cpus: f64| figure((cpus * price * 100.0).round() / 100.0);
        if own.limits.quota_us.is_some() {
            said += &format!(" Its CPUs cost {} a month", costs(own.reserved_cpus));
            if today.limits.quota_us.is_some() {
                said += &format!(" (today {})", costs(today.reserved_cpus));
            }
            said += ".";
        }
        said += &format!("{requests}: {} a month.", costs(shown.answer.request_cpus()));
    } else if own.limits.quota_us.is_none() {
        said += &format!("{requests}, and what a scheduler has to keep for it.");
    }
    said
}

fn risks(shown: &Shown) -> String {
    let own = &shown.answer.plan.recommended;
    let mut said = Vec::new();
    let variation = &shown.recordings.variation;
    said.push(format!(
        "Covered are runs that take {:+.0}% to {:+.0}% of the CPU time per {}.",
        (variation.low - 1.0) * 100.0,
        (variation.high - 1.0) * 100.0,
        shown.recordings.cost_per()
    ));
    if shown.recordings.sources.len() < 3 {
        said.push("Three recordings of different times would show how much runs differ.".into());
    }
    if own.throttled > 0.0 {
        said.push(format!(
            "It throttles in {:.1}% of the periods.",
            own.throttled * 100.0
        ));
    }
    let program = &shown.recordings.median().program;
    if program.groups[program.target as usize].quota_us.is_some() {
        said.push("It was recorded under a limit, whose waits are in what was recorded.".into());
    }
    let machine = f64::from(shown.recordings.median().machine.topology.nr_cpus());
    if own.limits.quota_us.is_some() {
        let runtimes = said_of_runtimes(program, own.reserved_cpus, machine);
        said.extend(runtimes.into_iter().map(|line| format!("{line}.")));
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_of_any_figure() {
        let shown = [0.0, 0.01234, 1.0, 12.345, 123.4, 5_432.1].map(short);
        assert_eq!(shown, ["0", "0.0123", "1.00", "12.3", "123", "5432"]);
    }

    #[test]
    fn lines_are_wrapped_under_their_label() {
        let mut screen = Screen { text: String::new() };
        screen.say("label", &"word ".repeat(40));
        let lines: Vec<&str> = screen.text.lines().collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= COLUMNS));
        assert!(lines[0].starts_with("label     word") && lines[1].starts_with("          word"));
    }
}
