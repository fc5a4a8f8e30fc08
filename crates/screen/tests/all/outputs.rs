// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a screening is written as: patches for Kubernetes, and the page.
use crate::common::{limited, screen, Made};
use expect_test::expect;
use plimsoll_screen::{html, patches, Screening};

fn owner(pod: &str, kind: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"__name__":"kube_pod_owner","namespace":"shop","pod":"{pod}","owner_kind":"{kind}","owner_name":"{pod}"}},"value":[1,"1"]}}]}}}}"#
    )
}

fn found() -> Screening {
    let made: [(Made, &str, &str); 6] = [
        (limited(4.0, 0.1, 0.0).request(4.0), "large", "StatefulSet"),
        (limited(1.0, 0.99, 0.95), "hidden", "DaemonSet"),
        (limited(1.0, 0.2, 0.02), "bursts", "Deployment"),
        (limited(4.0, 0.7, 0.0).no_limit().request(0.5), "free", "Rollout"),
        (limited(1.0, 0.7, 0.0).request(1.0), "fine", "StatefulSet"),
        (limited(4.0, 0.1, 0.0).request(4.0), "<b>&", "StatefulSet"),
    ];
    let documents: Vec<String> = made
        .into_iter()
        .flat_map(|(made, pod, kind)| [made.pod("shop", pod).json(), owner(pod, kind)])
        .collect();
    screen(&documents)
}

#[test]
fn a_patch_holds_what_the_advice_says_and_what_none_can_say_is_named() {
    let (files, left) = patches(&found());
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    expect![[r#"
        shop.statefulset.large.yaml
        shop.statefulset.large.vpa.yaml
    "#]]
    .assert_eq(&(names.join("\n") + "\n"));
    let of = |name: &str| &files.iter().find(|file| file.name == name).expect(name).text;
    expect![[r##"
        # container app: reserves 4.00 CPUs and uses 0.44 or less in 99% of the time: a request of 0.51 gives 3.49 CPUs back; a limit of 3.30 would throttle it in 0.5% of periods at most
        #   request and limit were equal: the pod leaves the QoS class Guaranteed
        # kubectl -n shop patch statefulset large --patch-file shop.statefulset.large.yaml   (rolls out; --dry-run=server first)
        apiVersion: apps/v1
        kind: StatefulSet
        metadata:
          name: "large"
          namespace: "shop"
        spec:
          template:
            spec:
              containers:
              - name: "app"
                resources:
                  requests:
                    cpu: 510m
                  limits:
                    cpu: 3300m
    "##]]
    .assert_eq(of("shop.statefulset.large.yaml"));
    expect![[r##"
        # Recommends only (updateMode Off). It moves requests and leaves limits, which it would otherwise move in proportion.
        # container app: reserves 4.00 CPUs and uses 0.44 or less in 99% of the time: a request of 0.51 gives 3.49 CPUs back; a limit of 3.30 would throttle it in 0.5% of periods at most
        #   request and limit were equal: the pod leaves the QoS class Guaranteed
        apiVersion: autoscaling.k8s.io/v1
        kind: VerticalPodAutoscaler
        metadata:
          name: "large"
          namespace: "shop"
        spec:
          targetRef:
            apiVersion: apps/v1
            kind: StatefulSet
            name: "large"
          updatePolicy:
            updateMode: "Off"
          resourcePolicy:
            containerPolicies:
            - containerName: "app"
              controlledResources: [cpu]
              controlledValues: RequestsOnly
              minAllowed:
                cpu: 510m
              maxAllowed:
                cpu: 3300m
    "##]]
    .assert_eq(of("shop.statefulset.large.vpa.yaml"));
    let mut why: Vec<String> = left
        .iter()
        .map(|one| format!("{}: {}\n", one.workload.name, one.why))
        .collect();
    why.sort();
    expect![[r#"
        <b>&: a name that Kubernetes does not allow
        bursts: a pod has no fields for burst and period: plimsoll agent, or the kubelet's cpuCFSQuotaPeriod
        free: a kind whose template is not known here
        hidden: how much more it needs does not show in its samples
    "#]]
    .assert_eq(&why.concat());
}

#[test]
fn the_page_holds_every_row_escaped_and_loads_nothing() {
    let page = html(&found(), &["plimsoll record # shop/<x>".into()]);
    assert_eq!(page.matches("<tbody>").count(), 6);
    assert!(page.contains("StatefulSet/&lt;b&gt;&amp; app") && !page.contains("<b>"));
    assert!(page.contains("plimsoll record # shop/&lt;x&gt;"));
    assert!(page.contains("default-src 'none'"));
    for outside in ["http://", "https://", "src=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}
