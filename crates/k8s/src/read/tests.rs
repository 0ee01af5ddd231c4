use serde_json::json;

use super::*;
use crate::testing::{Answer, FakeServer};

fn node() -> NodeRef {
    NodeRef { name: "n1".into(), uid: "u1".into() }
}

async fn occupancy(pods: Value) -> (Fact, FakeServer) {
    let list = json!({ "metadata": { "resourceVersion": "7" }, "items": pods });
    let server = FakeServer::answering([Answer::Json(200, list)]);
    let fact = server.api().occupancy(&node(), Instant::now() + Duration::from_secs(1)).await.unwrap();
    (fact, server)
}

#[tokio::test]
async fn a_node_is_busy_if_a_pod_runs_there_that_did_not_come_with_it() {
    let pod = |name: &str, owner: &str| {
        let owners = json!([{ "kind": owner, "name": "o", "uid": "o", "apiVersion": "v1" }]);
        json!({ "metadata": { "name": name, "namespace": "shop", "ownerReferences": owners } })
    };
    let mirror =
        json!({ "metadata": { "name": "m", "annotations": { "kubernetes.io/config.mirror": "x" } } });
    let (fact, _) = occupancy(json!([pod("a", "DaemonSet"), pod("b", "Node"), mirror])).await;
    assert_eq!(fact, Fact::Occupancy(node(), Occupancy::Idle));
    let (fact, _) = occupancy(json!([pod("a", "DaemonSet"), pod("cart-0", "StatefulSet")])).await;
    assert_eq!(fact, Fact::Occupancy(node(), Occupancy::Busy("shop/cart-0".to_owned())));
}

#[tokio::test]
async fn what_runs_on_a_node_does_not_make_the_server_read_every_pod_of_the_cluster() {
    let (_, server) = occupancy(json!([])).await;
    let lines = server.lines();
    assert!(lines[0].contains("spec.nodeName%3Dn1"), "{lines:?}");
    assert!(lines[0].ends_with("&resourceVersion=0"), "{lines:?}");
}
