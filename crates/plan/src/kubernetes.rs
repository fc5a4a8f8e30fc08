// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recommendation as Kubernetes takes it: the resize of a running pod, the container's and the pod's resources, the
//! policy that keeps a VerticalPodAutoscaler from undoing it.
//!
//! Sources, kubernetes.io/docs: "Resize CPU and Memory Resources assigned to Containers" (`--subresource resize`, kubectl
//! 1.32 and cluster 1.33 on; a limit that is set can be changed but not removed, and the QoS class stays), "Assign Pod-level
//! CPU and memory resources" (on by default from 1.34), and the API of autoscaling.k8s.io/v1 (`controlledValues`).
use crate::paste::Paste;
use crate::search::Limits;
use std::fmt::Write;

/// A Kubernetes cpu quantity: whole millicores, upwards.
pub fn millicores(cpus: f64) -> u64 {
    ((cpus * 1000.0 - 1e-6).ceil() as u64).max(1)
}

/// `request_cpus`: what the group is expected to use, at most; goes into `requests.cpu`. `members`: a pod's containers, of
/// which two and more share the limit. `lacks`: what else is not said.
pub(crate) fn paste(limits: &Limits, request_cpus: f64, members: &[&str], lacks: Option<String>) -> Paste {
    let limit = limits
        .quota_us
        .map(|us| (us * 1000).div_ceil(limits.period_us.max(1)));
    let request = millicores(request_cpus).min(limit.unwrap_or(u64::MAX));
    let (text, own) = match members.len() {
        0 | 1 => (container(limit, request), container_lacks(limit).to_string()),
        n => {
            let names = members.join(", ");
            let own =
                format!("before 1.34 one limit for {n} containers ({names}): a pod's is there the sum of its containers' limits");
            (pod(limit, request), own)
        }
    };
    Paste {
        system: "Kubernetes",
        text,
        lacks: Some(match lacks {
            Some(lacks) => format!("{lacks}; {own}"),
            None => own,
        }),
    }
}

/// Of one container, in millicores.
fn container(limit: Option<u64>, request: u64) -> String {
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("writing into memory");
    match limit {
        Some(limit) => {
            line("# the running pod; POD and CONTAINER are its names");
            line(&format!(
                "kubectl patch pod POD --subresource resize --patch \\\n  '{{\"spec\":{{\"containers\":[{{\"name\":\"CONTAINER\",\
                 \n    \"resources\":{{\"requests\":{{\"cpu\":\"{request}m\"}},\"limits\":{{\"cpu\":\"{limit}m\"}}}}}}]}}}}'"
            ));
            line("# its template, so that the next pod has it, too: the container");
            line(&format!(
                "resources:\n  requests:\n    cpu: {request}m\n  limits:\n    cpu: {limit}m"
            ));
            line("# or all containers of the pod together (spec.resources; Kubernetes 1.34)");
            line(&format!(
                "spec:\n  resources:\n    requests:\n      cpu: {request}m\n    limits:\n      cpu: {limit}m"
            ));
            line("# where a VerticalPodAutoscaler moves it: requests only, never above the limit");
            line(&format!(
                "spec:\n  resourcePolicy:\n    containerPolicies:\n    - containerName: CONTAINER\n      \
                 controlledResources: [cpu]\n      controlledValues: RequestsOnly\n      maxAllowed:\n        cpu: {limit}m"
            ));
        }
        None => {
            line("# requests only: what is reserved is the request, and nothing is throttled");
            line(&format!(
                "resources:\n  requests:\n    cpu: {request}m   # and no limits.cpu"
            ));
        }
    }
    text.trim_end().into()
}

fn container_lacks(limit: Option<u64>) -> &'static str {
    match limit {
        Some(_) => "a pod whose requests equal its limits (QoS class Guaranteed) keeps its class: give both the limit's value",
        None => "taking a limit away from a running pod: resize refuses it; change the template and roll out",
    }
}

/// One limit for all containers of a pod.
fn pod(limit: Option<u64>, request: u64) -> String {
    let mut text = format!(
        "# all containers of the pod together (spec.resources; Kubernetes 1.34), without limits.cpu of their own\n\
         spec:\n  resources:\n    requests:\n      cpu: {request}m"
    );
    if let Some(limit) = limit {
        text += &format!("\n    limits:\n      cpu: {limit}m");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        quota_us: Some(33_400),
        period_us: 100_000,
        burst_us: 0,
        weight: 100,
        headroom_percent: 0,
    };

    #[test]
    fn the_patch_is_json_and_requests_never_exceed_the_limit() {
        for (request_cpus, request) in [(0.3101, "311m"), (0.9, "334m")] {
            let text = paste(&LIMITS, request_cpus, &[], None).text;
            let patch = text.split('\'').nth(1).expect("quoted for the shell");
            let patch: serde_json::Value = serde_json::from_str(patch).expect(patch);
            let resources = &patch["spec"]["containers"][0]["resources"];
            assert_eq!(resources["limits"]["cpu"], "334m");
            assert_eq!(resources["requests"]["cpu"], request);
            assert_eq!(
                text.matches("cpu: 334m").count() - usize::from(request == "334m") * 2,
                3,
                "{text}"
            );
        }
    }

    #[test]
    fn containers_that_share_a_limit_get_it_as_a_pod() {
        let found = paste(&LIMITS, 0.2, &["front", "back"], None);
        assert!(found.text.starts_with("# all containers") && !found.text.contains("containers:"));
        assert!(found.text.ends_with("limits:\n      cpu: 334m"), "{}", found.text);
        let lacks = found.lacks.expect("older clusters cannot");
        assert!(lacks.contains("2 containers (front, back)"), "{lacks}");
    }

    #[test]
    fn without_a_limit_there_are_requests_and_no_patch() {
        let free = Limits {
            quota_us: None,
            ..LIMITS
        };
        let found = paste(&free, 0.25, &[], None);
        assert!(
            found.text.contains("cpu: 250m") && !found.text.contains("kubectl"),
            "{}",
            found.text
        );
        assert!(found.lacks.expect("a resize cannot").contains("refuses"));
    }
}
