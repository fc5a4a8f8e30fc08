// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is to be enforced: rules of a TOML file for the cgroups that match a glob, of which the last one that names a knob counts.
//! What a container asks for comes before them, and knobs that are set on a cgroup itself (`plimsoll set`, attributes
//! user.plimsoll.*) before all. The file also says how much containers may ask for.
use crate::annotations::Most;
use crate::{Error, Result};
use glob::{MatchOptions, Pattern};
use plimsoll_live::{Knob, KnobValues};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Default)]
pub struct Settings {
    rules: Vec<Rule>,
    most: Most,
    keeps_weights: bool,
}

#[derive(Debug)]
struct Rule {
    cgroup: Pattern,
    values: KnobValues,
}

type Spanned<T> = toml::Spanned<T>;
type Table = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    group: Vec<Table>,
    #[serde(default)]
    annotations: Table,
    #[serde(default)]
    headroom: ForHeadroom,
}

#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ForHeadroom {
    #[serde(default)]
    keeps_weights: bool,
}

impl Settings {
    /// From the text of the file at `path`. Everything that is wrong is said at once, a line for each.
    pub fn read(path: &Path, text: &str) -> Result<Self> {
        Self::parse(text).map_err(|mut wrong| {
            wrong.sort();
            let line = |(line, message): &(usize, String)| format!("{}:{line}: {message}", path.display());
            Error::Input(wrong.iter().map(line).collect::<Vec<_>>().join("\n"))
        })
    }

    fn parse(text: &str) -> std::result::Result<Self, Vec<(usize, String)>> {
        let line_at = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let document: Document = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            vec![(line_at(at), error.message().to_string())]
        })?;
        let (mut rules, mut wrong) = (Vec::new(), Vec::new());
        for table in document.group {
            let mut cgroup = None;
            let mut values = KnobValues::default();
            let mut line = 1;
            for (key, value) in &table {
                line = line_at(key.span().start);
                let (name, given) = (key.get_ref().as_str(), &text[value.span()]);
                if name == "cgroup" {
                    match pattern(value.get_ref()) {
                        Ok(pattern) => cgroup = Some(pattern),
                        Err(message) => wrong.push((line, format!("cgroup = {given}: {message}"))),
                    }
                    continue;
                }
                let Some(knob) = Knob::ALL.into_iter().find(|knob| knob.name() == name) else {
                    let known = Knob::ALL.map(Knob::name).join(", ");
                    wrong.push((line, format!("unknown key `{name}`; known: cgroup, {known}")));
                    continue;
                };
                match whole(value.get_ref()).filter(|number| (knob.least()..=knob.most()).contains(number)) {
                    Some(number) => values.set(knob, Some(number)),
                    None => {
                        let (least, most) = (knob.least(), knob.most());
                        let message = format!("allowed are whole numbers from {least} to {most}");
                        wrong.push((line, format!("{name} = {given}: {message}")));
                    }
                }
            }
            match cgroup {
                Some(cgroup) => rules.push(Rule { cgroup, values }),
                None if table.keys().any(|key| key.get_ref() == "cgroup") => {}
                None => wrong.push((
                    line,
                    "this [[group]] lacks `cgroup`, a glob of cgroup paths".into(),
                )),
            }
        }
        let mut most = Most::default();
        for (key, value) in &document.annotations {
            let (name, given) = (key.get_ref().as_str(), &text[value.span()]);
            let line = line_at(key.span().start);
            let Some((name, _, range)) = Most::names().find(|(known, ..)| *known == name) else {
                let known: Vec<&str> = Most::names().map(|(name, ..)| name).collect();
                wrong.push((line, format!("unknown key `{name}`; known: {}", known.join(", "))));
                continue;
            };
            match whole(value.get_ref()).filter(|number| *number <= range) {
                Some(number) => most.set(name, number),
                None => wrong.push((
                    line,
                    format!("{name} = {given}: allowed are whole numbers from 0 to {range}"),
                )),
            }
        }
        if wrong.is_empty() {
            Ok(Self {
                rules,
                most,
                keeps_weights: document.headroom.keeps_weights,
            })
        } else {
            Err(wrong)
        }
    }

    /// Whether the side's weights stay as their owners wrote them.
    pub fn keeps_weights(&self) -> bool {
        self.keeps_weights
    }

    /// How much containers may ask for.
    pub fn most(&self) -> &Most {
        &self.most
    }

    /// What counts for a group. `shown`: its path below the mount; `others`: what comes before the rules, the last most.
    pub fn of(&self, shown: &Path, others: &[KnobValues]) -> KnobValues {
        let options = MatchOptions {
            require_literal_separator: true,
            ..MatchOptions::new()
        };
        let mut values = KnobValues::default();
        let rules = self.rules.iter();
        let matching = rules.filter(|rule| rule.cgroup.matches_path_with(shown, options));
        for set in matching.map(|rule| &rule.values).chain(others) {
            for knob in Knob::ALL {
                if let Some(value) = set.get(knob) {
                    values.set(knob, Some(value));
                }
            }
        }
        values
    }
}

fn whole(value: &toml::Value) -> Option<u64> {
    u64::try_from(value.as_integer()?).ok()
}

fn pattern(value: &toml::Value) -> std::result::Result<Pattern, String> {
    let text = value
        .as_str()
        .filter(|text| text.starts_with('/') && text.len() > 1);
    let text =
        text.ok_or("allowed are globs of paths below the mount, such as \"/system.slice/web*.service\"")?;
    Pattern::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_names_a_knob_counts_and_the_group_itself_before_all() {
        let text = "
            [[group]]
            cgroup = \"/pods/**/web*\"
            burst_us = 1000
            onset_percent = 5
            [[group]]
            cgroup = \"/pods/*/web-1\"
            burst_us = 2000
        ";
        let settings = Settings::parse(text).unwrap();
        let of = |path, own: &KnobValues| settings.of(Path::new(path), &[*own]);
        let none = KnobValues::default();
        let burst = |path| of(path, &none).burst_us;
        assert_eq!(burst("/pods/a/web-1"), Some(2000));
        assert_eq!(burst("/pods/a/b/web-1"), Some(1000));
        assert_eq!(burst("/pods/a/db"), None);
        assert_eq!(
            burst("/pods/a/web-1/below"),
            None,
            "a star does not match a slash"
        );
        let own = KnobValues {
            burst_us: Some(0),
            ..none
        };
        assert_eq!(of("/pods/a/web-1", &own).burst_us, Some(0));
        assert_eq!(of("/pods/a/web-1", &own).onset_percent, Some(5));
    }

    #[test]
    fn errors_name_line_key_value_and_range_all_at_once() {
        let text =
            "[[group]]\ncgroup = \"web\"\nburst_us = -1\nbrust_us = 3\n[[group]]\nonset_percent = 101\n";
        let path = Path::new("a.toml");
        let error = Settings::read(path, text).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 5, "{error}");
        assert!(
            lines[0].starts_with("a.toml:2: cgroup = \"web\": allowed are globs"),
            "{error}"
        );
        assert_eq!(
            lines[1],
            "a.toml:3: burst_us = -1: allowed are whole numbers from 0 to 17592186044415"
        );
        assert!(lines[2].starts_with("a.toml:4: unknown key `brust_us`; known: cgroup, headroom_percent,"));
        assert!(lines[3].starts_with("a.toml:6: onset_percent = 101: allowed"));
        assert!(lines[4].starts_with("a.toml:6: this [[group]] lacks `cgroup`"));
        let most = Settings::read(path, "[annotations]\nperiod_us = 0\nburst_us = -1\ncpu = 1\n");
        let most = most.unwrap_err().to_string();
        let lines: Vec<&str> = most.lines().collect();
        assert_eq!(
            lines[0],
            "a.toml:3: burst_us = -1: allowed are whole numbers from 0 to 17592186044415"
        );
        assert!(
            lines[1].starts_with("a.toml:4: unknown key `cpu`; known: headroom_percent,"),
            "{most}"
        );
        let weights = |text| Settings::read(path, text).map(|settings| settings.keeps_weights());
        assert!(!weights("").unwrap() && weights("[headroom]\nkeeps_weights = true\n").unwrap());
        let unknown = weights("\n[headroom]\nkeeps_weight = true\n")
            .unwrap_err()
            .to_string();
        assert!(unknown.starts_with("a.toml:3: "), "{unknown}");
        let unknown = Settings::read(path, "\n[group]\n").unwrap_err().to_string();
        assert!(unknown.starts_with("a.toml:2: "), "{unknown}");
    }
}
