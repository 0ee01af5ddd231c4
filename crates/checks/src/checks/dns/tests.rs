use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;

use super::*;
use crate::testing::{self, FakeDns, Reply, TransportSet, shortly, soon};

fn resolver(servers: &[SocketAddr]) -> Resolver {
    let search = vec![Name::from_ascii("svc.example.").unwrap(), Name::from_ascii("example.").unwrap()];
    Resolver { servers: servers.to_vec(), search, ndots: 5 }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn failed(outcome: Outcome) -> Trouble {
    match outcome {
        Outcome::Fail(trouble) => {
            assert!(!ABOUT.hint(trouble.kind).is_empty());
            trouble
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_name_is_asked_of_every_server() {
    let (good, bad) =
        (FakeDns::start(Reply::Address).await, FakeDns::start(Reply::Code(ResponseCode::ServFail)).await);
    let (good, bad) = (good.address, bad.address);
    let outcome = resolver(&[good]).look_up(&names(&["a.example", "b.example"]), soon()).await;
    assert_eq!(outcome, Outcome::Pass("a.example, b.example at 127.0.0.1 over udp and tcp".to_owned()));
    let trouble = failed(resolver(&[good, bad]).look_up(&names(&["a.example", "b.example"]), soon()).await);
    assert_eq!(trouble.kind, Kind::Servfail);
    assert_eq!(
        trouble.detail,
        format!(
            "a.example could not be looked up (SERVFAIL) by {bad} over udp and tcp; \
             b.example could not be looked up (SERVFAIL) by {bad} over udp and tcp"
        )
    );
}

#[tokio::test]
async fn silence_over_only_one_transport_is_distinguished() {
    for (transports, kind) in
        [(TransportSet::UdpOnly, Kind::TcpTimeout), (TransportSet::TcpOnly, Kind::UdpTimeout)]
    {
        let server = FakeDns::with(|_, _| Reply::Address, transports).await;
        let trouble = failed(resolver(&[server.address]).look_up(&names(&["a.example"]), shortly()).await);
        assert_eq!(trouble.kind, kind, "{trouble:?}");
    }
    let silent = FakeDns::start(Reply::Silence).await;
    let trouble = failed(resolver(&[silent.address]).look_up(&names(&["a.example"]), shortly()).await);
    assert_eq!(trouble.kind, Kind::Timeout);
    assert!(trouble.detail.ends_with(&format!("at {} over udp and tcp", silent.address)), "{trouble:?}");
}

#[tokio::test]
async fn a_server_that_does_not_exist_is_reported() {
    let closed = testing::closed_tcp().await;
    let trouble = failed(resolver(&[closed]).look_up(&names(&["a.example"]), soon()).await);
    assert_eq!(
        trouble,
        Trouble::new(
            Kind::Refused,
            format!("a.example asked at {closed} over udp: connection refused (errno 111), and over tcp")
        )
    );
}

#[tokio::test]
async fn a_short_name_is_looked_for_in_the_search_domains() {
    let knows = |name: &Name, _: RecordType| match name.to_ascii().as_str() {
        "kubernetes.default.svc.example." | "a.b.c.d.e.f." | "1.2.3.4.kubernetes.default.svc.example." => {
            Reply::Address
        }
        _ => Reply::Code(ResponseCode::NXDomain),
    };
    let server = FakeDns::with(knows, TransportSet::Both).await;
    let look_up = |name: &'static str| {
        let resolver = resolver(&[server.address]);
        async move { resolver.look_up(&names(&[name]), soon()).await }
    };
    assert!(matches!(look_up("kubernetes.default").await, Outcome::Pass(_)));
    assert!(matches!(look_up("a.b.c.d.e.f").await, Outcome::Pass(_)));
    // A name with a trailing dot, or with many dots, is not looked up in the search domains.
    assert_eq!(failed(look_up("kubernetes.default.").await).kind, Kind::Nxdomain);
    let many = failed(look_up("1.2.3.4.kubernetes.default").await);
    assert_eq!(many.kind, Kind::Nxdomain);
    let trouble = failed(look_up("nobody").await);
    assert!(trouble.detail.starts_with("nobody does not exist at "), "{trouble:?}");
}

#[tokio::test]
async fn an_address_is_nothing_to_resolve() {
    let server = FakeDns::start(Reply::Address).await;
    let outcome =
        resolver(&[server.address]).look_up(&names(&["10.0.0.1", "a.example", "::1"]), soon()).await;
    let expected = "a.example at 127.0.0.1 over udp and tcp; 10.0.0.1 is an address, nothing to resolve; \
                    ::1 is an address, nothing to resolve";
    assert_eq!(outcome, Outcome::Pass(expected.to_owned()));
    let none = resolver(&[server.address]).look_up(&names(&["10.0.0.1"]), soon()).await;
    assert_eq!(none, Outcome::Skipped("10.0.0.1 is an address, nothing to resolve".to_owned()));
}

#[tokio::test]
async fn many_failures_are_counted() {
    let server = FakeDns::start(Reply::Code(ResponseCode::Refused)).await;
    let five = names(&["a", "b", "c", "d", "e"]);
    let trouble = failed(resolver(&[server.address]).look_up(&five, soon()).await);
    assert!(trouble.detail.ends_with("; 5 of 5 lookups failed"), "{trouble:?}");
    assert_eq!(trouble.detail.matches("REFUSED").count(), LISTED);
}

#[tokio::test]
async fn the_nameservers_of_the_system_are_asked() {
    let file = std::env::temp_dir().join(format!("resolv-{}.conf", std::process::id()));
    std::fs::write(
        &file,
        "search a.example b.example\nnameserver 10.96.0.10\nnameserver ::1\noptions ndots:5\n",
    )
    .unwrap();
    let resolver = Resolver::read(&file).unwrap();
    assert_eq!(
        resolver.servers,
        ["10.96.0.10:53".parse().unwrap(), "[::1]:53".parse::<SocketAddr>().unwrap()]
    );
    assert_eq!((resolver.search.len(), resolver.ndots), (2, 5));
    std::fs::write(&file, "search a.example\n").unwrap();
    let dns = Dns { domains: names(&["a"]), resolv_conf: file.clone() };
    let trouble = failed(dns.run(&testing::context(soon())).await);
    assert_eq!(trouble.kind, Kind::NoNameserver);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(failed(dns.run(&testing::context(soon())).await).kind, Kind::NoNameserver);
}
