// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a pod to the workload that it belongs to, through the owners that kube-state-metrics names.
use crate::answer::Labels;
use crate::labels::Container;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub struct Workload {
    pub namespace: String,
    /// Deployment, StatefulSet, DaemonSet, CronJob, Job, ...; Pod where no owner is known.
    pub kind: String,
    pub name: String,
}

type Owner = (String, String);

/// Namespace and name of an object, to the kind and name of its owner.
#[derive(Default)]
pub struct Owners {
    pods: HashMap<Owner, Owner>,
    replica_sets: HashMap<Owner, Owner>,
    jobs: HashMap<Owner, Owner>,
}

impl Owners {
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Takes a series of kube-state-metrics; says whether it was one.
    pub fn take(&mut self, name: &str, labels: &Labels) -> bool {
        let (map, object) = match name {
            "kube_pod_owner" => (&mut self.pods, "pod"),
            "kube_replicaset_owner" => (&mut self.replica_sets, "replicaset"),
            "kube_job_owner" => (&mut self.jobs, "job_name"),
            _ => return false,
        };
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        let owner = (label("owner_kind"), label("owner_name"));
        // Objects without an owner have "<none>", newer ones an empty label.
        if !owner.0.is_empty() && owner.0 != "<none>" {
            map.insert((label("namespace"), label(object)), owner);
        }
        true
    }

    pub fn workload(&self, container: &Container) -> Workload {
        let namespace = &container.namespace;
        let of =
            |map: &HashMap<Owner, Owner>, name: &str| map.get(&(namespace.clone(), name.into())).cloned();
        let (kind, name) = match of(&self.pods, &container.pod) {
            None => ("Pod".to_string(), container.pod.clone()),
            Some((kind, name)) => {
                let above = match kind.as_str() {
                    "ReplicaSet" => of(&self.replica_sets, &name),
                    "Job" => of(&self.jobs, &name),
                    _ => None,
                };
                above.unwrap_or((kind, name))
            }
        };
        Workload {
            namespace: namespace.clone(),
            kind,
            name,
        }
    }
}
