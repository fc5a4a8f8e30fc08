// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a pod or container asks for itself: `plimsoll.dev/burst-us` and its like, as annotations or labels. The names are those
//! of the knobs, with a hyphen, and the period, which is the runtime's to write.
use crate::limits::QUOTA_LEAST_US;
use plimsoll_live::{Knob, KnobValues};
use plimsoll_policy_sys::{BwLimits, BwPart};
use std::collections::BTreeMap;

pub const PREFIX: &str = "plimsoll.dev/";
const PERIOD: &str = "period_us";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    pub knobs: KnobValues,
    pub period_us: Option<u64>,
}

/// How much containers may ask for, by name of the knob; 0: nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Most(BTreeMap<&'static str, u64>);

impl Default for Most {
    /// All that stays within a container's own limit. Headroom takes from others what they have, so the node's owner
    /// has to allow it.
    fn default() -> Self {
        Self(BTreeMap::from([("headroom_percent", 0), ("tolerance_us", 0)]))
    }
}

impl Most {
    /// Every name that containers may use, with its range.
    pub fn names() -> impl Iterator<Item = (&'static str, u64, u64)> {
        let knobs = Knob::ALL.map(|knob| (knob.name(), knob.least(), knob.most()));
        let (least, most) = BwLimits::NONE.allowed(BwPart::Period, true).into_inner();
        knobs.into_iter().chain([(PERIOD, least, most)])
    }

    pub fn set(&mut self, name: &'static str, most: u64) {
        self.0.insert(name, most);
    }

    fn of(&self, name: &str, most: u64) -> u64 {
        self.0.get(name).copied().unwrap_or(most).min(most)
    }
}

/// Where a container's wishes are written. The later ones count: a pod's for all its containers, a container's labels, its
/// annotations, and what the pod's annotations say for the container of this name, `plimsoll.dev/burst-us.NAME`.
pub struct Written<'a> {
    pub pod: &'a BTreeMap<String, String>,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    pub name: &'a str,
}

impl Written<'_> {
    /// What is asked for, and what is wrong with the rest, which is left out.
    pub fn wishes(&self, most: &Most) -> (Wishes, Vec<String>) {
        let (mut wishes, mut wrong) = (Wishes::default(), Vec::new());
        let suffix = format!(".{}", self.name);
        for (place, is_of_name) in [
            (self.pod, false),
            (self.labels, false),
            (self.annotations, false),
            (self.pod, true),
        ] {
            for (full, value) in place {
                let Some(key) = full.strip_prefix(PREFIX) else {
                    continue;
                };
                let name = match is_of_name {
                    true => key.strip_suffix(&suffix),
                    false => Some(key).filter(|key| !key.contains('.')),
                };
                let Some(name) = name else { continue };
                if let Err(message) = wishes.set(&name.replace('-', "_"), value, most) {
                    wrong.push(format!("{full}={}: {message}", value.escape_debug()));
                }
            }
        }
        (wishes, wrong)
    }

    /// The same of a container that runs already: its period is the runtime's to write.
    pub fn knobs_of_what_runs(&self, most: &Most) -> (KnobValues, Vec<String>) {
        let (wishes, mut wrong) = self.wishes(most);
        if wishes.period_us.is_some() {
            wrong.push(format!(
                "{PREFIX}period-us: only with --nri, as the period is the runtime's to write"
            ));
        }
        (wishes.knobs, wrong)
    }
}

/// What is said of a wish that is wrong. `who`: the container's name, as a user would say it.
pub fn left_out(who: &str, wrong: &str) -> String {
    format!("warning: {who}: {wrong}; it is left out")
}

/// A container of a pod, as a user would call it.
pub fn in_pod(namespace: &str, pod: &str, container: &str) -> String {
    let [namespace, pod, container] = [namespace, pod, container].map(str::escape_debug);
    format!("pod {namespace}/{pod}, container {container}")
}

impl Wishes {
    fn set(&mut self, name: &str, value: &str, most: &Most) -> Result<(), String> {
        let Some((name, least, range)) = Most::names().find(|(known, ..)| *known == name) else {
            let known: Vec<String> = Most::names().map(|(name, ..)| name.replace('_', "-")).collect();
            return Err(format!("unknown setting; known: {}", known.join(", ")));
        };
        let most = most.of(name, range);
        if most < least || most == 0 {
            return Err(format!(
                "containers may not set it on this node: [annotations] {name} of the agent's configuration allows it"
            ));
        }
        let number = value.trim().parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        let number = number.ok_or_else(|| format!("allowed are whole numbers from {least} to {most}"))?;
        match Knob::ALL.into_iter().find(|knob| knob.name() == name) {
            Some(knob) => self.knobs.set(knob, Some(number)),
            None => self.period_us = Some(number),
        }
        Ok(())
    }

    /// Quota and period with the period that is asked for, at the rate that the owner wrote: rounded down by less than 1 us.
    /// `None`: they stay. An error says why they have to.
    pub fn limits(
        &self,
        quota_us: Option<i64>,
        period_us: Option<u64>,
    ) -> Result<Option<(u64, u64)>, String> {
        let Some(to_us) = self.period_us else {
            return Ok(None);
        };
        let period_us = period_us.filter(|period_us| *period_us > 0).unwrap_or(100_000);
        let Some(quota_us) = quota_us
            .and_then(|quota_us| u64::try_from(quota_us).ok())
            .filter(|us| *us > 0)
        else {
            return Ok(None); // without a limit a period means nothing
        };
        if to_us == period_us {
            return Ok(None);
        }
        let scaled_us = u128::from(quota_us) * u128::from(to_us) / u128::from(period_us);
        let least_us = *QUOTA_LEAST_US;
        match u64::try_from(scaled_us) {
            Ok(scaled_us) if scaled_us >= least_us => Ok(Some((scaled_us, to_us))),
            _ => Err(format!(
                "{PREFIX}period-us={to_us}: the limit of {quota_us} us each {period_us} us would be {scaled_us} us of it, where Linux takes \
                 {least_us} us at least; the period stays {period_us} us"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pair = |(key, value): &(&str, &str)| (format!("{PREFIX}{key}"), value.to_string());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_most_particular_place_counts() {
        let none = map(&[]);
        let pod = map(&[
            ("burst-us", "1"),
            ("burst-us.web", "4"),
            ("onset-percent", "5"),
            ("burst-us.db", "x"),
        ]);
        let (labels, annotations) = (map(&[("burst-us", "2")]), map(&[("burst-us", "3")]));
        let wishes = |pod, labels, annotations, name| {
            let written = Written {
                pod,
                labels,
                annotations,
                name,
            };
            let (wishes, wrong) = written.wishes(&Most::default());
            assert!(wrong.is_empty() || name == "db", "{wrong:?}");
            wishes.knobs
        };
        let burst = |pod, labels, annotations, name| wishes(pod, labels, annotations, name).burst_us;
        assert_eq!(burst(&pod, &none, &none, "other"), Some(1));
        assert_eq!(burst(&pod, &labels, &none, "other"), Some(2));
        assert_eq!(burst(&pod, &labels, &annotations, "other"), Some(3));
        assert_eq!(burst(&pod, &labels, &annotations, "web"), Some(4));
        assert_eq!(
            burst(&pod, &none, &none, "db"),
            Some(1),
            "what is wrong is left out"
        );
        assert_eq!(wishes(&pod, &none, &none, "web").onset_percent, Some(5));
    }

    #[test]
    fn what_is_wrong_is_named_with_key_value_and_range_and_the_rest_counts() {
        let pod = map(&[
            ("burst-us", "-1"),
            ("brust-us", "7"),
            ("period-us", "999"),
            ("onset-percent", "30"),
            ("headroom-percent", "10"),
        ]);
        let none = map(&[]);
        let written = Written {
            pod: &pod,
            labels: &none,
            annotations: &none,
            name: "web",
        };
        let (wishes, wrong) = written.wishes(&Most::default());
        assert_eq!(wishes.knobs.onset_percent, Some(30));
        assert_eq!((wishes.period_us, wishes.knobs.headroom_percent), (None, None));
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(wrong[0].starts_with("plimsoll.dev/brust-us=7: unknown setting; known: headroom-percent,"));
        assert_eq!(
            wrong[1],
            "plimsoll.dev/burst-us=-1: allowed are whole numbers from 0 to 17592186044415"
        );
        assert!(wrong[2].starts_with("plimsoll.dev/headroom-percent=10: containers may not set it"));
        assert_eq!(
            wrong[3],
            "plimsoll.dev/period-us=999: allowed are whole numbers from 1000 to 1000000"
        );
        let mut most = Most::default();
        most.set("headroom_percent", 10);
        most.set("burst_us", 5);
        let (wishes, wrong) = written.wishes(&most);
        assert_eq!(wishes.knobs.headroom_percent, Some(10));
        assert!(wrong.contains(&"plimsoll.dev/burst-us=-1: allowed are whole numbers from 0 to 5".into()));
    }

    #[test]
    fn a_period_keeps_the_rate_and_is_refused_where_the_quota_would_be_too_small() {
        let of = |period_us| Wishes {
            period_us: Some(period_us),
            ..Wishes::default()
        };
        assert_eq!(
            of(10_000).limits(Some(20_000), Some(100_000)),
            Ok(Some((2_000, 10_000)))
        );
        assert_eq!(
            of(10_000).limits(Some(33_333), Some(100_000)),
            Ok(Some((3_333, 10_000)))
        );
        assert_eq!(of(10_000).limits(Some(-1), Some(100_000)), Ok(None));
        assert_eq!(of(10_000).limits(None, None), Ok(None));
        assert_eq!(
            of(100_000).limits(Some(5_000), None),
            Ok(None),
            "100 ms is what there is where nothing is said"
        );
        assert!(of(10_000)
            .limits(Some(9_999), Some(100_000))
            .unwrap_err()
            .contains("999 us"));
    }
}
