// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is asked for, in PromQL.

/// Limits and requests by old and new names of kube-state-metrics, and what cAdvisor has of the kernel's.
const SETTINGS: &str =
    "kube_pod_container_resource_(limits|requests)(_cpu_cores)?|container_spec_cpu_(quota|period)";

/// Containers, without the sandbox of a pod and the pod as a whole.
const CONTAINERS: &str = r#"container!="",container!="POD",pod!="""#;

/// Labels that every selector has: some namespaces, and what the user adds.
#[derive(Clone, Debug)]
pub struct Scope {
    text: String,
}

impl Scope {
    /// No namespaces: all. `more`: matchers as PromQL has them, `cluster="a"`.
    pub fn new(namespaces: &[String], more: &str) -> Self {
        let mut parts = Vec::new();
        match namespaces {
            [] => {}
            [one] => parts.push(format!("namespace={}", quoted(one))),
            several => {
                let list: Vec<String> = several.iter().map(|name| literal(name)).collect();
                parts.push(format!("namespace=~{}", quoted(&list.join("|"))));
            }
        }
        let more = more.trim().trim_matches(',');
        if !more.is_empty() {
            parts.push(more.into());
        }
        Scope {
            text: parts.join(","),
        }
    }

    /// The samples themselves over (`end - length_ms`, `end`].
    pub fn samples(&self, metric: &str, length_ms: i64) -> String {
        // Prometheus 2 takes a sample at the beginning, Prometheus 3 does not: a ms more, and both have the first one due.
        format!("{}[{}ms]", self.containers(metric), length_ms + 1)
    }

    /// Growth per second between the last two samples, wherever it is asked for.
    pub fn rates(&self, metric: &str, window_ms: i64) -> String {
        format!("irate({}[{window_ms}ms])", self.containers(metric))
    }

    /// Only these that fell within the time: their samples say less than they seem to.
    pub fn resets(&self, metric: &str, length_ms: i64) -> String {
        format!("resets({}) > 0", self.samples(metric, length_ms))
    }

    /// Of one namespace these pods.
    pub fn pods(namespace: &str, pods: &[&str], more: &str) -> Self {
        let list: Vec<String> = pods.iter().map(|name| literal(name)).collect();
        let own = format!("pod=~{}", quoted(&list.join("|")));
        let more = more.trim().trim_matches(',');
        let comma = if more.is_empty() { "" } else { "," };
        Scope::new(&[namespace.to_string()], &format!("{own}{comma}{more}"))
    }

    pub fn containers(&self, metric: &str) -> String {
        self.selector(metric, CONTAINERS)
    }

    pub fn settings(&self) -> String {
        // cAdvisor's have no label for the resource.
        self.selector(
            "",
            &format!(r#"__name__=~"{SETTINGS}",resource=~"cpu|",{CONTAINERS}"#),
        )
    }

    pub fn owners(&self, metric: &str) -> String {
        self.selector(metric, "")
    }

    fn selector(&self, metric: &str, labels: &str) -> String {
        let comma = if labels.is_empty() || self.text.is_empty() {
            ""
        } else {
            ","
        };
        format!("{metric}{{{labels}{comma}{}}}", self.text)
    }
}

/// A string of PromQL.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out += "\\n",
            _ => out.push(c),
        }
    }
    out + "\""
}

/// A regular expression that this text alone matches.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if !c.is_alphanumeric() && c != '-' && c != '_' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_as_they_are() {
        let scope = Scope::new(&["a.b".into(), "c\"d".into()], " cluster=\"x\", ");
        assert_eq!(
            scope.owners("kube_pod_owner"),
            r#"kube_pod_owner{namespace=~"a\\.b|c\\\"d",cluster="x"}"#
        );
        let scope = Scope::new(&[], "");
        assert_eq!(scope.owners("m"), "m{}");
        assert_eq!(
            scope.samples("m", 60_000),
            r#"m{container!="",container!="POD",pod!=""}[60001ms]"#
        );
    }
}
