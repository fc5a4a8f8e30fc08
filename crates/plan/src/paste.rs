//! A recommendation in the words of whatever has to be told, and what each of them cannot say.
use crate::search::Limits;
use plimsoll_replay::Semantics;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Paste {
    pub system: &'static str,
    pub text: String,
    /// What this system cannot be told.
    pub lacks: Option<String>,
}

/// Settings for `group`, ready to be pasted.
pub fn paste(group: &str, limits: &Limits, semantics: Semantics) -> Vec<Paste> {
    let name = group.trim_matches('/');
    let unit = name.rsplit('/').next().unwrap_or(name);
    let Limits {
        quota_us,
        period_us,
        burst_us,
        weight,
        headroom_percent,
    } = *limits;
    let quota_v2 = quota_us.map_or("max".into(), |q| q.to_string());
    let quota_v1 = quota_us.map_or("-1".into(), |q| q.to_string());
    let cpus = quota_us.map(|q| q as f64 / period_us as f64);
    let burst = (burst_us > 0).then_some(burst_us);
    let own_burst = semantics == Semantics::Published && quota_us.is_some_and(|q| burst_us > q);
    let no_burst = burst.map(|us| format!("burst ({us} us): write it to the cgroup file itself, as above"));
    let beyond = |kernel: &str| own_burst.then(|| format!("a burst above the quota: {kernel} refuses it"));

    let mut v2 = vec![format!(
        "echo \"{quota_v2} {period_us}\" > /sys/fs/cgroup/{name}/cpu.max"
    )];
    let mut v1 = vec![
        format!("echo {period_us} > /sys/fs/cgroup/cpu/{name}/cpu.cfs_period_us"),
        format!("echo {quota_v1} > /sys/fs/cgroup/cpu/{name}/cpu.cfs_quota_us"),
    ];
    if let (Some(us), false) = (burst, own_burst) {
        v2.push(format!("echo {us} > /sys/fs/cgroup/{name}/cpu.max.burst"));
        v1.push(format!("echo {us} > /sys/fs/cgroup/cpu/{name}/cpu.cfs_burst_us"));
    }
    if weight != 100 {
        v2.push(format!("echo {weight} > /sys/fs/cgroup/{name}/cpu.weight"));
        v1.push(format!(
            "echo {} > /sys/fs/cgroup/cpu/{name}/cpu.shares",
            shares(weight)
        ));
    }

    let period = format!("CPUQuotaPeriodSec={}ms", period_us as f64 / 1000.0);
    let percent = cpus.map_or(String::new(), |c| format!("{}%", trim(c * 100.0, 2)));
    let mut systemd = format!("systemctl set-property {unit}.service CPUQuota={percent} {period}");
    if weight != 100 {
        systemd += &format!(" CPUWeight={weight}");
    }

    let docker = match cpus {
        None => format!("docker update --cpus 0 {unit}"),
        Some(cpus) if period_us == 100_000 => format!("docker update --cpus {} {unit}", trim(cpus, 3)),
        Some(_) => {
            format!(
                "docker update --cpu-period {period_us} --cpu-quota {} {unit}",
                quota_us.unwrap_or(0)
            )
        }
    };

    let kubernetes = match cpus {
        None => "resources:\n  limits: {}   # no cpu".into(),
        Some(cpus) => format!("resources:\n  limits:\n    cpu: {}m", (cpus * 1000.0).ceil()),
    };
    let mut kubernetes_lacks = Vec::new();
    if cpus.is_some() && period_us != 100_000 {
        kubernetes_lacks.push(format!(
            "the period ({period_us} us): it is 100 ms on the whole node unless the kubelet's cpuCFSQuotaPeriod says otherwise"
        ));
    }
    if burst.is_some() {
        kubernetes_lacks.push(format!("burst ({burst_us} us)"));
    }

    let mut knobs = vec![
        format!("quota_us={quota_v2}"),
        format!("period_us={period_us}"),
        format!("burst_us={burst_us}"),
    ];
    if headroom_percent > 0 {
        knobs.push(format!("headroom={headroom_percent}"));
    }
    if weight != 100 {
        knobs.push(format!("weight={weight}"));
    }
    vec![
        Paste {
            system: "cgroup v2",
            text: v2.join("\n"),
            lacks: beyond("the kernel"),
        },
        Paste {
            system: "cgroup v1",
            text: v1.join("\n"),
            lacks: beyond("the kernel"),
        },
        Paste {
            system: "systemd",
            text: systemd,
            lacks: no_burst.clone(),
        },
        Paste {
            system: "Docker",
            text: docker,
            lacks: no_burst,
        },
        Paste {
            system: "Kubernetes",
            text: kubernetes,
            lacks: (!kubernetes_lacks.is_empty()).then(|| kubernetes_lacks.join("; ")),
        },
        Paste {
            system: "Plimsoll",
            text: format!("plimsoll set /{name} {}", knobs.join(" ")),
            lacks: None,
        },
    ]
}

/// cpu.shares for a cpu.weight: 1024 for 100.
fn shares(weight: u32) -> u32 {
    (weight * 1024 / 100).clamp(2, 262_144)
}

/// A number with at most so many digits behind the point.
fn trim(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        quota_us: Some(12_500),
        period_us: 25_000,
        burst_us: 6_000,
        weight: 100,
        headroom_percent: 0,
    };

    fn text_of<'a>(found: &'a [Paste], system: &str) -> (&'a str, &'a str) {
        let paste = found.iter().find(|p| p.system == system).unwrap();
        (&paste.text, paste.lacks.as_deref().unwrap_or(""))
    }

    #[test]
    fn every_system_is_told_the_same_limit_and_what_it_cannot_say() {
        let found = paste("/web/api", &LIMITS, Semantics::Mainline);
        assert!(text_of(&found, "cgroup v2")
            .0
            .contains("\"12500 25000\" > /sys/fs/cgroup/web/api/cpu.max"));
        assert!(text_of(&found, "cgroup v2")
            .0
            .contains("6000 > /sys/fs/cgroup/web/api/cpu.max.burst"));
        assert!(text_of(&found, "cgroup v1")
            .0
            .contains("6000 > /sys/fs/cgroup/cpu/web/api/cpu.cfs_burst_us"));
        let (systemd, lacks) = text_of(&found, "systemd");
        assert!(
            systemd.contains("CPUQuota=50% CPUQuotaPeriodSec=25ms"),
            "{systemd}"
        );
        assert!(lacks.contains("burst"));
        assert!(text_of(&found, "Docker")
            .0
            .contains("--cpu-period 25000 --cpu-quota 12500"));
        let (kubernetes, lacks) = text_of(&found, "Kubernetes");
        assert!(kubernetes.contains("cpu: 500m") && lacks.contains("period") && lacks.contains("burst"));
        assert!(text_of(&found, "Plimsoll").0.contains("burst_us=6000"));
    }

    #[test]
    fn no_limit_is_said_as_such() {
        let free = Limits {
            quota_us: None,
            period_us: 100_000,
            burst_us: 0,
            ..LIMITS
        };
        let found = paste("web", &free, Semantics::Mainline);
        assert!(text_of(&found, "cgroup v2").0.contains("\"max 100000\""));
        assert!(text_of(&found, "cgroup v1").0.contains("echo -1"));
        assert!(text_of(&found, "systemd").0.contains("CPUQuota= "));
    }
}
