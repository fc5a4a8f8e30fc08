// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goals: `p99(request) < 50ms`, `throttled < 1%`.
//!
//! ```text
//! goal     = quantity ("<" | "<=") value
//! quantity = "p" NUMBER [of] | "mean" [of] | "max" [of] | "throttled"
//! of       = "(" NAME ")"
//! value    = NUMBER ("ns" | "us" | "ms" | "s" | "%")
//! ```
//! A time is above 0, and so is a share behind `<`: nothing is below it.
//! `request` names every request, as no name does; another name those that this program answers.
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// Percentile, 0 < p <= 100, of the latencies of `class`; `None`: of all requests.
    Percentile {
        percent: f64,
        class: Option<String>,
    },
    Mean {
        class: Option<String>,
    },
    /// Share of periods with throttling.
    Throttled,
}

/// As in a goal.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |class: &Option<String>| class.clone().unwrap_or("request".into());
        match self {
            Subject::Percentile { percent, class } if *percent == 100.0 => write!(f, "max({})", name(class)),
            Subject::Percentile { percent, class } => write!(f, "p{percent}({})", name(class)),
            Subject::Mean { class } => write!(f, "mean({})", name(class)),
            Subject::Throttled => f.write_str("throttled"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Below,
    AtMost,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    pub text: String,
    pub subject: Subject,
    pub comparison: Comparison,
    /// Nanoseconds, or for a share 0..1.
    pub bound: f64,
}

/// A goal that cannot be read, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("goal {text:?}, at character {position}: {found}; allowed: {allowed}\n  {text}\n  {caret}")]
pub struct GoalError {
    pub text: String,
    /// From 1.
    pub position: usize,
    pub found: String,
    pub allowed: String,
    pub caret: String,
}

impl Goal {
    /// The goal for throttling where none is given: the share of throttled periods above which the alert
    /// CPUThrottlingHigh fires, which most Kubernetes clusters have (kubernetes-mixin, `cpuThrottlingPercent: 25`).
    pub const THROTTLED_DEFAULT: &str = "throttled < 25%";

    /// Adds [`Goal::THROTTLED_DEFAULT`] where no goal speaks of throttling, so that no recommendation throttles in most
    /// periods because the percentile looks away. True: added. `throttled <= 100%` takes it out of the way.
    pub fn add_default(goals: &mut Vec<Goal>) -> bool {
        let given = goals.iter().any(|goal| goal.subject == Subject::Throttled);
        if !given {
            goals.push(Goal::THROTTLED_DEFAULT.parse().expect("a goal"));
        }
        !given
    }

    pub fn is_met_by(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.bound,
            Comparison::AtMost => value <= self.bound,
        }
    }

    /// How much room a value leaves, as a share of the bound; negative: missed by so much.
    pub fn margin(&self, value: f64) -> f64 {
        match self.bound {
            // Not -value, which is "-0" for nothing.
            0.0 => 0.0 - value,
            bound => (bound - value) / bound,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Goal, GoalError> {
        let mut parser = Parser { text, at: 0 };
        let subject = parser.subject()?;
        let comparison = parser.comparison()?;
        let is_share = subject == Subject::Throttled;
        let bound = parser.bound(is_share, comparison)?;
        parser.end()?;
        Ok(Goal {
            text: text.trim().into(),
            subject,
            comparison,
            bound,
        })
    }
}

/// As long as a recording may be.
const LONGEST_NS: f64 = 86_400e9;

const QUANTITIES: &str = "p99 or p99(request), any pNUMBER(NAME), mean(NAME), max(NAME), throttled";

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn error<T>(&self, at: usize, allowed: &str) -> Result<T, GoalError> {
        let found = match self.text[at..].split_whitespace().next() {
            Some(word) => format!("found {word:?}"),
            None => "the goal ends here".into(),
        };
        let before = self.text[..at].chars().count();
        Err(GoalError {
            text: self.text.into(),
            position: before + 1,
            found,
            allowed: allowed.into(),
            caret: " ".repeat(before) + "^",
        })
    }

    /// The longest stretch of characters that `is` takes.
    fn take(&mut self, is: impl Fn(char) -> bool) -> &str {
        let start = self.at;
        let length = self.rest().find(|c| !is(c)).unwrap_or(self.rest().len());
        self.at += length;
        &self.text[start..start + length]
    }

    fn expect(&mut self, symbol: &str) -> Result<(), GoalError> {
        self.skip_space();
        if !self.rest().starts_with(symbol) {
            return self.error(self.at, &format!("\"{symbol}\""));
        }
        self.at += symbol.len();
        Ok(())
    }

    fn subject(&mut self) -> Result<Subject, GoalError> {
        self.skip_space();
        let start = self.at;
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '.').to_string();
        match word.as_str() {
            "throttled" => Ok(Subject::Throttled),
            "mean" => Ok(Subject::Mean { class: self.class()? }),
            "max" => Ok(Subject::Percentile {
                percent: 100.0,
                class: self.class()?,
            }),
            _ => {
                let Some(number) = word.strip_prefix('p') else {
                    return self.error(start, QUANTITIES);
                };
                match number.parse::<f64>() {
                    Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Subject::Percentile {
                        percent,
                        class: self.class()?,
                    }),
                    _ => self.error(start, "p followed by a number above 0, at most 100"),
                }
            }
        }
    }

    /// A name in parentheses; `request` is all of them, as is none.
    fn class(&mut self) -> Result<Option<String>, GoalError> {
        self.skip_space();
        if !self.rest().starts_with('(') {
            return Ok(None);
        }
        self.expect("(")?;
        self.skip_space();
        let start = self.at;
        let name = self.take(|c| c != ')' && c != '(').trim().to_string();
        if name.is_empty() {
            return self.error(start, "request, or the name of a program");
        }
        self.expect(")")?;
        Ok((name != "request").then_some(name))
    }

    fn comparison(&mut self) -> Result<Comparison, GoalError> {
        self.skip_space();
        let (comparison, length) = if self.rest().starts_with("<=") {
            (Comparison::AtMost, 2)
        } else if self.rest().starts_with('<') {
            (Comparison::Below, 1)
        } else {
            return self.error(self.at, "< or <=");
        };
        self.at += length;
        Ok(comparison)
    }

    fn bound(&mut self, is_share: bool, comparison: Comparison) -> Result<f64, GoalError> {
        self.skip_space();
        let start = self.at;
        let number = self.take(|c| c.is_ascii_digit() || c == '.').parse::<f64>();
        let Ok(number) = number else {
            return self.error(start, "a number");
        };
        self.skip_space();
        let unit_at = self.at;
        let unit = self.take(|c| c.is_ascii_alphabetic() || c == '%').to_string();
        let bound = match (is_share, unit.as_str()) {
            (true, "%") => number / 100.0,
            (true, _) => return self.error(unit_at, "%"),
            (false, "ns") => number,
            (false, "us") => number * 1e3,
            (false, "ms") => number * 1e6,
            (false, "s") => number * 1e9,
            (false, _) => return self.error(unit_at, "ns, us, ms, s"),
        };
        let least = match is_share && comparison == Comparison::AtMost {
            true => 0.0,
            false => f64::MIN_POSITIVE,
        };
        let most = if is_share { 1.0 } else { LONGEST_NS };
        match ((least..=most).contains(&bound), is_share, comparison) {
            (true, ..) => Ok(bound),
            (_, true, Comparison::AtMost) => self.error(start, "0% to 100%"),
            (_, true, Comparison::Below) => self.error(start, "above 0%, to 100%; or <= 0%"),
            (_, false, _) => self.error(start, "above 0, to one day (86400s)"),
        }
    }

    fn end(&mut self) -> Result<(), GoalError> {
        self.skip_space();
        if self.rest().is_empty() {
            return Ok(());
        }
        self.error(self.at, "nothing more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_with_their_units() {
        let goal: Goal = "p99(request) < 50ms".parse().unwrap();
        assert_eq!(
            goal.subject,
            Subject::Percentile {
                percent: 99.0,
                class: None
            }
        );
        assert_eq!((goal.bound, goal.comparison), (50e6, Comparison::Below));
        let goal: Goal = "throttled<=1%".parse().unwrap();
        assert_eq!((goal.subject.clone(), goal.bound), (Subject::Throttled, 0.01));
        assert!(goal.is_met_by(0.01) && !goal.is_met_by(0.011));
        let goal: Goal = " p99.9 ( nginx ) < 2 s ".parse().unwrap();
        assert_eq!(
            goal.subject,
            Subject::Percentile {
                percent: 99.9,
                class: Some("nginx".into())
            }
        );
        assert_eq!(goal.bound, 2e9);
    }

    #[test]
    fn all_requests_need_no_name() {
        for (short, long) in [
            ("p99 < 5ms", "p99(request) < 5ms"),
            ("mean<=5ms", "mean(request)<=5ms"),
            ("max < 5ms", "max(request) < 5ms"),
        ] {
            let of = |text: &str| text.parse::<Goal>().unwrap().subject;
            assert_eq!(of(short), of(long));
        }
    }

    #[test]
    fn no_throttling_at_all_is_a_goal_whose_margin_has_a_sign_only_when_missed() {
        let goal: Goal = "throttled <= 0%".parse().unwrap();
        assert!(goal.is_met_by(0.0) && !goal.is_met_by(0.01));
        assert!(goal.margin(0.0).is_sign_positive());
        assert_eq!(goal.margin(0.01), -0.01);
    }

    #[test]
    fn throttling_has_a_goal_unless_one_is_given() {
        let mut goals: Vec<Goal> = vec!["p99(request) < 5ms".parse().unwrap()];
        assert!(Goal::add_default(&mut goals) && goals[1].bound == 0.25);
        let mut own: Vec<Goal> = vec!["throttled <= 100%".parse().unwrap()];
        assert!(!Goal::add_default(&mut own) && own.len() == 1);
    }

    #[test]
    fn a_goal_that_cannot_be_read_shows_where() {
        for (text, position, allowed) in [
            ("", 1, "p99 or p99(request)"),
            ("latency < 5ms", 1, "p99 or p99(request)"),
            ("p101(request) < 5ms", 1, "at most 100"),
            ("p99 > 5ms", 5, "<"),
            ("p99() < 5ms", 5, "request"),
            ("p99(request > 5ms", 18, "\")\""),
            ("p99(request) > 5ms", 14, "<"),
            ("p99(request) < fast", 16, "number"),
            ("p99(request) < 5", 17, "ms"),
            ("p99(request) < 5%", 17, "ms"),
            ("throttled < 5ms", 14, "%"),
            ("throttled < 500%", 13, "100%"),
            ("p99(request) < 0ms", 16, "above 0"),
            ("mean(request) <= 0.0s", 18, "above 0"),
            ("p99(request) < 86401s", 16, "one day"),
            ("throttled < 0%", 13, "<= 0%"),
            ("throttled < 5% or so", 16, "nothing more"),
        ] {
            let error = text.parse::<Goal>().unwrap_err();
            assert_eq!(error.position, position, "{error}");
            assert!(error.allowed.contains(allowed), "{error}");
        }
    }
}
