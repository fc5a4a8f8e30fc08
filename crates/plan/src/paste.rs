// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A recommendation in the words of whatever has to be told, and what each of them cannot say.
use crate::kubernetes;
use crate::search::Limits;
use crate::target::Target;
use plimsoll_replay::Semantics;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Paste {
    pub system: &'static str,
    pub text: String,
    /// What this system cannot be told.
    pub lacks: Option<String>,
}

/// Settings for `group`, ready to be pasted where `today`'s are in force. `members`: names of the groups right below it that
/// share the limit, such as a pod's containers; none or one where it is a service of its own. `cgroup_version`: 1 or 2; `None`: not known. `request_cpus`: CPUs
/// that it will use at most, for `requests.cpu`.
pub fn paste(
    group: &str,
    members: &[&str],
    today: &Limits,
    limits: &Limits,
    request_cpus: f64,
    semantics: Semantics,
    cgroup_version: Option<u32>,
) -> Vec<Paste> {
    let name = group.trim_matches('/');
    let last = name.rsplit('/').next().unwrap_or(name);
    // What systemd made is named after its unit; Docker's groups are then scopes of the container's number.
    let unit = match [".service", ".slice", ".scope"]
        .iter()
        .any(|kind| last.ends_with(kind))
    {
        true => last.to_string(),
        false => format!("{last}.service"),
    };
    let container = last
        .strip_prefix("docker-")
        .and_then(|rest| rest.strip_suffix(".scope"))
        .unwrap_or(last);
    let unit = word(&unit);
    let container = word(container);
    let v2_file = |file: &str| word(&format!("/sys/fs/cgroup/{name}{file}"));
    let v1_file = |file: &str| word(&format!("/sys/fs/cgroup/cpu/{name}{file}"));
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
    // Shares that were recorded as a weight need not be what that weight is as shares: 2 are weight 1, which is 10.
    let new_weight = (weight != today.weight).then_some(weight);
    let own_burst = semantics == Semantics::Published && quota_us.is_some_and(|q| burst_us > q);
    let no_burst = burst.map(|us| format!("burst ({us} us): write it to the cgroup file itself, as above"));
    let no_headroom = (headroom_percent > 0).then(|| format!("headroom ({headroom_percent}%)"));
    let list = |lacks: &[Option<String>]| {
        let lacks: Vec<&str> = lacks.iter().flatten().map(String::as_str).collect();
        (!lacks.is_empty()).then(|| lacks.join("; "))
    };
    // What was replayed is not what these do: they take the same numbers, and keep to them at ticks only.
    let no_rules = (semantics == Semantics::Published)
        .then(|| "the rules of `plimsoll run`, under which alone this prediction holds".to_string());
    let beyond = own_burst.then(|| "a burst above the quota: the kernel refuses it".to_string());

    let mut v2 = Vec::new();
    let mut v1 = Vec::new();
    // The kernel refuses a quota below the burst that is there, and keeps that burst where no other is written.
    if today.burst_us > 0 {
        v2.push(format!("echo 0 > {}", v2_file("/cpu.max.burst")));
        v1.push(format!("echo 0 > {}", v1_file("/cpu.cfs_burst_us")));
    }
    v2.push(format!(
        "echo \"{quota_v2} {period_us}\" > {}",
        v2_file("/cpu.max")
    ));
    // Under v1 the two are written one after the other, and the kernel refuses what is above the limit of the group
    // above, be it for a moment only.
    if today.quota_us.is_some() {
        v1.push(format!("echo -1 > {}", v1_file("/cpu.cfs_quota_us")));
    }
    v1.push(format!("echo {period_us} > {}", v1_file("/cpu.cfs_period_us")));
    v1.push(format!("echo {quota_v1} > {}", v1_file("/cpu.cfs_quota_us")));
    if let (Some(us), false) = (burst, own_burst) {
        v2.push(format!("echo {us} > {}", v2_file("/cpu.max.burst")));
        v1.push(format!("echo {us} > {}", v1_file("/cpu.cfs_burst_us")));
    }
    if let Some(weight) = new_weight {
        v2.push(format!("echo {weight} > {}", v2_file("/cpu.weight")));
        v1.push(format!("echo {} > {}", shares(weight), v1_file("/cpu.shares")));
    }

    let period = format!("CPUQuotaPeriodSec={}ms", period_us as f64 / 1000.0);
    let percent = cpus.map_or(String::new(), |c| format!("{}%", trim(c * 100.0, 2)));
    let mut systemd = format!("systemctl set-property {unit} CPUQuota={percent} {period}");
    if let Some(weight) = new_weight {
        systemd += &format!(" CPUWeight={weight}");
    }

    // `--cpus 0` would change nothing.
    let mut docker = match cpus {
        None => format!("docker update --cpu-quota -1 {container}"),
        Some(cpus) if period_us == 100_000 => format!("docker update --cpus {} {container}", trim(cpus, 5)),
        Some(_) => {
            format!(
                "docker update --cpu-period {period_us} --cpu-quota {} {container}",
                quota_us.unwrap_or(0)
            )
        }
    };

    let made_otherwise = match cpus {
        Some(_) if period_us == 100_000 => {
            "a container made with --cpu-quota or --cpu-period: Docker refuses --cpus for it; say --cpu-quota instead"
        }
        _ => "a container made with --cpus: Docker refuses --cpu-period and --cpu-quota for it; make it anew",
    };
    let old_burst = (today.burst_us > 0).then(|| {
        let burst_us = today.burst_us;
        format!(
            "today's burst ({burst_us} us), under which the kernel refuses a smaller quota: first write 0 to the cgroup \
             file itself, as above"
        )
    });

    // Under cgroup v2 Docker makes a weight of shares: before runc 1.3.2 1024 were weight 39, since then they are 100, on
    // a curve on which 2048 are not 200.
    let no_shares = match (new_weight, cgroup_version) {
        (Some(weight), Some(1)) => {
            docker += &format!("\ndocker update --cpu-shares {} {container}", shares(weight));
            None
        }
        (Some(weight), _) => Some(format!(
            "weight ({weight}): what --cpu-shares makes of it under cgroup v2 depends on the version of runc; write it to \
             cpu.weight, as above"
        )),
        (None, _) => None,
    };

    let no_period = (cpus.is_some() && period_us != 100_000).then(|| {
        format!(
            "the period ({period_us} us): it is 100 ms on the whole node unless the kubelet's cpuCFSQuotaPeriod says otherwise"
        )
    });
    let no_weight = new_weight.map(|weight| format!("weight ({weight}): it follows from requests.cpu"));

    // Limits and weights are the kernel's files under `plimsoll run`, too; its knobs are what those cannot say.
    let mut plimsoll = v2.clone();
    let mut knobs = Vec::new();
    if own_burst {
        knobs.push(format!("burst_us={burst_us}"));
    }
    if headroom_percent > 0 {
        knobs.push(format!("headroom_percent={headroom_percent}"));
    }
    if !knobs.is_empty() {
        plimsoll.push(format!("plimsoll set {} {}", v2_file(""), knobs.join(" ")));
    }
    vec![
        Paste {
            system: "cgroup v2",
            text: v2.join("\n"),
            lacks: list(&[no_rules.clone(), beyond.clone(), no_headroom.clone()]),
        },
        Paste {
            system: "cgroup v1",
            text: v1.join("\n"),
            lacks: list(&[no_rules.clone(), beyond, no_headroom.clone()]),
        },
        Paste {
            system: "systemd",
            text: systemd,
            lacks: list(&[
                no_rules.clone(),
                old_burst.clone(),
                no_burst.clone(),
                no_headroom.clone(),
            ]),
        },
        Paste {
            system: "Docker",
            text: docker,
            lacks: list(&[
                no_rules.clone(),
                old_burst,
                no_burst,
                no_shares,
                no_headroom.clone(),
                match members.len() {
                    0 | 1 => Some(made_otherwise.into()),
                    _ => Some(format!(
                        "one limit for several containers ({}): Docker has none; write it to the cgroup file, as above",
                        members.join(", ")
                    )),
                },
            ]),
        },
        kubernetes::paste(
            limits,
            request_cpus,
            members,
            list(&[
                no_rules,
                no_period,
                burst.map(|us| format!("burst ({us} us): `plimsoll agent` on the node writes it, told by a rule of its --config")),
                no_weight,
                no_headroom,
            ]),
        ),
        Paste {
            system: "Plimsoll",
            text: plimsoll.join("\n"),
            lacks: None,
        },
    ]
}

impl Paste {
    /// Whether it is for that target.
    pub fn is_for(&self, target: Target) -> bool {
        match target {
            Target::Kubernetes | Target::KubernetesAgent => self.system == "Kubernetes",
            Target::Docker => self.system == "Docker",
            Target::Systemd => self.system == "systemd",
            Target::Cgroup => self.system.starts_with("cgroup"),
            Target::Plimsoll => self.system == "Plimsoll",
        }
    }
}

/// Text as one word of a shell. systemd writes `\x2d` for a hyphen in a name, and users name their groups as they
/// like: what root pastes must do no more than it says.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:+".contains(c);
    match text.chars().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
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

    const FREE: Limits = Limits {
        quota_us: None,
        period_us: 100_000,
        burst_us: 0,
        ..LIMITS
    };

    fn text_of<'a>(found: &'a [Paste], system: &str) -> (&'a str, &'a str) {
        let paste = found.iter().find(|p| p.system == system).unwrap();
        (&paste.text, paste.lacks.as_deref().unwrap_or(""))
    }

    #[test]
    fn every_system_is_told_the_same_limit_and_what_it_cannot_say() {
        let found = paste("/web/api", &[], &FREE, &LIMITS, 0.3, Semantics::Mainline, Some(2));
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
        assert_eq!(
            text_of(&found, "Plimsoll"),
            text_of(&found, "cgroup v2"),
            "nothing that the kernel's files cannot say"
        );
    }

    #[test]
    fn kernels_own_settings_say_that_a_prediction_for_plimsoll_is_not_theirs() {
        let of = |semantics| paste("/web", &[], &FREE, &LIMITS, 0.3, semantics, Some(2));
        for (found, other) in of(Semantics::Published).iter().zip(&of(Semantics::Mainline)) {
            let lacks = |paste: &Paste| paste.lacks.as_ref().is_some_and(|l| l.contains("`plimsoll run`"));
            assert_eq!(lacks(found), found.system != "Plimsoll", "{found:?}");
            assert!(!lacks(other), "{other:?}");
        }
    }

    #[test]
    fn what_only_plimsoll_can_do_is_said_to_it_and_lacks_elsewhere() {
        let limits = Limits {
            burst_us: 50_000,
            headroom_percent: 30,
            weight: 200,
            ..LIMITS
        };
        let found = paste(
            "/web/api",
            &[],
            &FREE,
            &limits,
            0.3,
            Semantics::Published,
            Some(2),
        );
        let text = text_of(&found, "Plimsoll").0;
        assert!(
            text.contains("\"12500 25000\" > /sys/fs/cgroup/web/api/cpu.max\n"),
            "{text}"
        );
        assert!(
            text.ends_with("plimsoll set /sys/fs/cgroup/web/api burst_us=50000 headroom_percent=30"),
            "{text}"
        );
        for system in ["cgroup v2", "cgroup v1", "systemd", "Docker", "Kubernetes"] {
            let lacks = text_of(&found, system).1;
            assert!(
                lacks.contains("burst") && lacks.contains("headroom (30%)"),
                "{system}: {lacks}"
            );
        }
    }

    #[test]
    fn weight_is_said_where_it_changes_and_in_the_numbers_of_who_is_told() {
        let with = |today, weight, version| {
            let today = Limits {
                weight: today,
                ..LIMITS
            };
            let limits = Limits { weight, ..LIMITS };
            paste("/web", &[], &today, &limits, 0.3, Semantics::Mainline, version)
        };
        for (weight, version) in [(100, 2), (300, 2), (1, 1)] {
            for found in with(weight, weight, Some(version)) {
                let said = format!("{found:?}").to_lowercase();
                assert!(!said.contains("weight") && !said.contains("shares"), "{said}");
            }
        }
        for (today, weight, shares) in [(100, 200, 2048), (200, 100, 1024)] {
            let (v2, v1) = (with(today, weight, Some(2)), with(today, weight, Some(1)));
            let told = [
                (
                    "cgroup v2",
                    format!("\necho {weight} > /sys/fs/cgroup/web/cpu.weight"),
                ),
                (
                    "cgroup v1",
                    format!("\necho {shares} > /sys/fs/cgroup/cpu/web/cpu.shares"),
                ),
                ("systemd", format!(" CPUWeight={weight}")),
            ];
            for (system, end) in told {
                assert!(text_of(&v2, system).0.ends_with(&end), "{system}: {end}");
            }
            assert!(text_of(&v2, "Kubernetes")
                .1
                .contains(&format!("weight ({weight})")));
            let docker = text_of(&v1, "Docker");
            assert!(docker
                .0
                .ends_with(&format!("\ndocker update --cpu-shares {shares} web")));
            assert!(!docker.1.contains("weight"), "{}", docker.1);
            // Which weight that would be depends on the version of runc; where the cgroups' is not known, too.
            for found in [v2, with(today, weight, None)] {
                let docker = text_of(&found, "Docker");
                assert!(!docker.0.contains("shares") && docker.1.contains("cpu.weight, as above"));
            }
        }
    }

    #[test]
    fn a_burst_of_today_is_taken_away_before_the_quota_that_it_forbids() {
        let today = Limits {
            quota_us: Some(20_000),
            burst_us: 20_000,
            ..LIMITS
        };
        let lines = |today, limits, system| {
            let found = paste("/web", &[], today, limits, 0.3, Semantics::Mainline, Some(2));
            text_of(&found, system).0.to_string()
        };
        let v2 = "echo \"12500 25000\" > /sys/fs/cgroup/web/cpu.max";
        let gone = "echo 0 > /sys/fs/cgroup/web/cpu.max.burst";
        let new = "echo 6000 > /sys/fs/cgroup/web/cpu.max.burst";
        for system in ["cgroup v2", "Plimsoll"] {
            assert_eq!(lines(&today, &LIMITS, system), format!("{gone}\n{v2}\n{new}"));
        }
        let none = Limits {
            burst_us: 0,
            ..LIMITS
        };
        assert_eq!(lines(&today, &none, "cgroup v2"), format!("{gone}\n{v2}"));
        assert_eq!(lines(&FREE, &none, "cgroup v2"), v2);
        let v1 = lines(&today, &none, "cgroup v1");
        let file = "/sys/fs/cgroup/cpu/web/cpu.cfs";
        let quota =
            format!("echo -1 > {file}_quota_us\necho 25000 > {file}_period_us\necho 12500 > {file}_quota_us");
        assert_eq!(v1, format!("echo 0 > {file}_burst_us\n{quota}"));
        // Nothing forbids the new period where there is no quota.
        assert!(lines(&FREE, &none, "cgroup v1").starts_with("echo 25000 > "));
        let found = paste("/web", &[], &today, &none, 0.3, Semantics::Mainline, Some(2));
        for system in ["systemd", "Docker"] {
            let lacks = text_of(&found, system).1;
            assert!(lacks.contains("today's burst (20000 us)"), "{system}: {lacks}");
        }
    }

    /// Rounding would set another limit than the one that was simulated.
    #[test]
    fn every_digit_of_a_limit_is_said() {
        let said = |quota_us, period_us, system| {
            let limits = Limits {
                quota_us: Some(quota_us),
                period_us,
                ..FREE
            };
            let found = paste("/web", &[], &FREE, &limits, 0.3, Semantics::Mainline, Some(2));
            text_of(&found, system).0.to_string()
        };
        for (quota_us, cpus) in [
            (1_050, "0.0105"),
            (9_150, "0.0915"),
            (26_200, "0.262"),
            (200_000, "2"),
        ] {
            assert!(said(quota_us, 100_000, "Docker").ends_with(&format!("--cpus {cpus} web")));
        }
        assert!(said(20_150, 10_000, "Kubernetes").ends_with("cpu: 2015m"));
        assert!(said(1_001, 100_000, "Kubernetes").ends_with("cpu: 11m"));
    }

    #[test]
    fn units_and_containers_are_called_by_their_own_names() {
        let found = paste(
            "/system.slice/nginx.service",
            &[],
            &FREE,
            &LIMITS,
            0.3,
            Semantics::Mainline,
            Some(2),
        );
        assert!(text_of(&found, "systemd").0.contains(" nginx.service CPUQuota"));
        let found = paste(
            "/system.slice/docker-4f2a.scope",
            &[],
            &FREE,
            &LIMITS,
            0.3,
            Semantics::Mainline,
            Some(2),
        );
        assert!(text_of(&found, "Docker").0.ends_with(" 4f2a"));
        assert!(text_of(
            &paste("/web", &[], &FREE, &LIMITS, 0.3, Semantics::Mainline, Some(2)),
            "systemd"
        )
        .0
        .contains(" web.service CPUQuota"));
    }

    #[test]
    fn a_name_is_one_word_of_the_shell_whatever_is_in_it() {
        let limits = Limits {
            weight: 200,
            headroom_percent: 30,
            ..LIMITS
        };
        for (name, said) in [
            (r"a\x2db.service", r"a\x2db.service"),
            ("a b$(reboot)", "a b$(reboot)"),
            ("it's;reboot", r"it'\''s;reboot"),
        ] {
            for paste in paste(
                &format!("/x/{name}"),
                &[],
                &FREE,
                &limits,
                0.3,
                Semantics::Published,
                Some(2),
            ) {
                for line in paste.text.lines().filter(|line| line.contains(said)) {
                    let before = &line[..line.find(said).unwrap()];
                    assert_eq!(before.matches('\'').count(), 1, "{line}");
                }
                assert!(
                    paste.system == "Kubernetes" || paste.text.contains(said),
                    "{paste:?}"
                );
            }
        }
    }

    #[test]
    fn no_limit_is_said_as_such() {
        let found = paste("web", &[], &LIMITS, &FREE, 0.3, Semantics::Mainline, Some(2));
        assert!(text_of(&found, "cgroup v2").0.contains("\"max 100000\""));
        assert!(text_of(&found, "cgroup v1").0.contains("echo -1"));
        assert!(text_of(&found, "systemd").0.contains("CPUQuota= "));
        let (docker, lacks) = text_of(&found, "Docker");
        assert_eq!(docker, "docker update --cpu-quota -1 web");
        assert!(lacks.contains("a container made with --cpus"), "{lacks}");
    }
}
