// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Advice as Kubernetes takes it: for each workload a patch of its template, which `kubectl patch --patch-file` and kustomize
//! read, and a VerticalPodAutoscaler that only recommends and stays within what was found.
//!
//! Sources, kubernetes.io/docs: "Update API Objects in Place Using kubectl patch" (strategic merge: containers are merged by
//! name), "Resource units in Kubernetes" (whole millicores); the API of autoscaling.k8s.io/v1 (`controlledValues`).
use crate::class::Class;
use crate::collect::Screening;
use crate::owners::Workload;
use crate::table::Row;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Of the file, `NAMESPACE.KIND.NAME.yaml`.
    pub name: String,
    pub text: String,
}

/// Advice for which there is no patch, for which container, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    pub workload: Workload,
    pub container: String,
    pub why: &'static str,
}

/// Patches of all workloads that have advice, and what no patch can say.
pub fn patches(found: &Screening) -> (Vec<Patch>, Vec<Left>) {
    let mut left = Vec::new();
    let mut workloads: BTreeMap<&Workload, Vec<&Row>> = BTreeMap::new();
    let wrong = |row: &&Row| row.advice != Default::default() || row.class == Class::TooSmall;
    for row in found.rows.iter().filter(wrong) {
        match obstacle(row) {
            Some(why) => left.push(Left {
                workload: row.workload.clone(),
                container: row.container.clone(),
                why,
            }),
            None => workloads.entry(&row.workload).or_default().push(row),
        }
    }
    let mut files = Vec::new();
    for (workload, mut rows) in workloads {
        rows.sort_by(|a, b| a.container.cmp(&b.container));
        let base = format!(
            "{}.{}.{}",
            workload.namespace,
            workload.kind.to_lowercase(),
            workload.name
        );
        files.push(Patch {
            name: format!("{base}.yaml"),
            text: template(workload, &rows, &base),
        });
        files.push(Patch {
            name: format!("{base}.vpa.yaml"),
            text: autoscaler(workload, &rows),
        });
    }
    (files, left)
}

fn api_version(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => Some("apps/v1"),
        "CronJob" => Some("batch/v1"),
        "ReplicationController" => Some("v1"),
        _ => None,
    }
}

fn obstacle(row: &Row) -> Option<&'static str> {
    let named = |name: &str| {
        let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        !name.is_empty() && name.len() <= 253 && name.bytes().all(sound)
    };
    let workload = &row.workload;
    if ![&workload.namespace, &workload.name, &row.container]
        .into_iter()
        .all(|name| named(name))
    {
        return Some("a name that Kubernetes does not allow");
    }
    if api_version(&workload.kind).is_none() {
        return Some(match workload.kind.as_str() {
            "Pod" => "a pod without a known owner: its template is elsewhere",
            "Job" => "the template of a job cannot be changed",
            _ => "a kind whose template is not known here",
        });
    }
    match row.advice.request.or(row.advice.limit) {
        None if row.class == Class::TooSmall => Some("how much more it needs does not show in its samples"),
        None => Some(
            "a pod has no fields for burst and period: plimsoll agent, or the kubelet's cpuCFSQuotaPeriod",
        ),
        Some(_) => None,
    }
}

/// Whole millicores, upwards.
fn cpu(cpus: f64) -> String {
    format!("{}m", ((cpus * 1000.0 - 1e-6).ceil() as u64).max(1))
}

/// A request must not be above the limit that is there in the end.
fn request(row: &Row) -> Option<f64> {
    let limit = row.advice.limit.or(row.limit).unwrap_or(f64::INFINITY);
    row.advice.request.map(|request| request.min(limit))
}

fn head(text: &mut String, workload: &Workload, version: &str, kind: &str) {
    let Workload { namespace, name, .. } = workload;
    *text += &format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name:?}\n  namespace: {namespace:?}\n"
    );
}

fn template(workload: &Workload, rows: &[&Row], base: &str) -> String {
    let mut text = String::new();
    let Workload {
        namespace,
        kind,
        name,
    } = workload;
    write_reasons(&mut text, rows);
    text += &format!(
        "# kubectl -n {namespace} patch {} {name} --patch-file {base}.yaml   (rolls out; --dry-run=server first)\n",
        kind.to_lowercase()
    );
    head(&mut text, workload, api_version(kind).expect("no obstacle"), kind);
    let mut indent = String::from("  ");
    let mut open = |text: &mut String, key: &str| {
        writeln!(text, "{indent}{key}:").expect("memory");
        indent += "  ";
    };
    text += "spec:\n";
    if kind == "CronJob" {
        open(&mut text, "jobTemplate");
        open(&mut text, "spec");
    }
    open(&mut text, "template");
    open(&mut text, "spec");
    writeln!(text, "{indent}containers:").expect("memory");
    for row in rows {
        writeln!(text, "{indent}- name: {:?}\n{indent}  resources:", row.container).expect("memory");
        for (what, cpus) in [("requests", request(row)), ("limits", row.advice.limit)] {
            if let Some(cpus) = cpus {
                writeln!(text, "{indent}    {what}:\n{indent}      cpu: {}", cpu(cpus)).expect("memory");
            }
        }
    }
    text
}

/// It recommends and changes nothing until its mode is another.
fn autoscaler(workload: &Workload, rows: &[&Row]) -> String {
    let mut text = String::from(
        "# Recommends only (updateMode Off). It moves requests and leaves limits, which it would otherwise move in proportion.\n",
    );
    write_reasons(&mut text, rows);
    head(
        &mut text,
        workload,
        "autoscaling.k8s.io/v1",
        "VerticalPodAutoscaler",
    );
    let version = api_version(&workload.kind).expect("no obstacle");
    text += &format!(
        "spec:\n  targetRef:\n    apiVersion: {version}\n    kind: {}\n    name: {:?}\n  updatePolicy:\n    updateMode: \"Off\"\n  \
         resourcePolicy:\n    containerPolicies:\n",
        workload.kind, workload.name
    );
    for row in rows {
        text += &format!(
            "    - containerName: {:?}\n      controlledResources: [cpu]\n      controlledValues: RequestsOnly\n",
            row.container
        );
        for (what, cpus) in [
            ("minAllowed", request(row)),
            ("maxAllowed", row.advice.limit.or(row.limit)),
        ] {
            if let Some(cpus) = cpus {
                text += &format!("      {what}:\n        cpu: {}\n", cpu(cpus));
            }
        }
    }
    text
}

fn write_reasons(text: &mut String, rows: &[&Row]) {
    for row in rows {
        writeln!(text, "# container {}: {}", row.container, row.reason).expect("memory");
        if let Some(burst_ms) = row.advice.burst_ms {
            writeln!(
                text,
                "#   and burst of {burst_ms:.0} ms, for which a pod has no field"
            )
            .expect("memory");
        }
        // Both equal makes the QoS class Guaranteed, which evicts last and may own CPUs.
        let equal = |request: Option<f64>, limit: Option<f64>| limit.is_some() && request.or(limit) == limit;
        let after = (request(row).or(row.request), row.advice.limit.or(row.limit));
        if equal(row.request, row.limit) && !equal(after.0, after.1) {
            writeln!(
                text,
                "#   request and limit were equal: the pod leaves the QoS class Guaranteed"
            )
            .expect("memory");
        }
    }
}
