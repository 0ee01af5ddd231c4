use super::*;
use crate::testing::{self, FakeDns, Reply, TransportSet, shortly, soon};

const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

fn name() -> Name {
    Name::from_ascii("a.example.").unwrap()
}

fn to(address: SocketAddr, transport: Transport) -> Server {
    Server { address, transport }
}

#[tokio::test]
async fn an_address_is_found_over_both_transports() {
    let server = FakeDns::start(Reply::Address).await;
    for transport in BOTH {
        assert_eq!(addresses(&name(), to(server.address, transport), soon()).await, Ok(()));
    }
}

#[tokio::test]
async fn one_family_is_enough() {
    let only = |wanted: RecordType| {
        move |_: &Name, asked: RecordType| if asked == wanted { Reply::Address } else { Reply::Silence }
    };
    // The fake has only an A record, so it answers only that question.
    let server = FakeDns::with(only(RecordType::A), TransportSet::Both).await;
    assert_eq!(addresses(&name(), to(server.address, Transport::Udp), soon()).await, Ok(()));
    // A name without a record of one family may have one of the other, so a timeout there decides.
    let half = |_: &Name, asked: RecordType| match asked {
        RecordType::A => Reply::Code(ResponseCode::NoError),
        _ => Reply::Silence,
    };
    let server = FakeDns::with(half, TransportSet::Both).await;
    for transport in BOTH {
        let trouble = addresses(&name(), to(server.address, transport), shortly()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Timeout, "{trouble:?}");
    }
    let other_half = |_: &Name, asked: RecordType| match asked {
        RecordType::A => Reply::Silence,
        _ => Reply::Code(ResponseCode::NoError),
    };
    let server = FakeDns::with(other_half, TransportSet::Both).await;
    let trouble = addresses(&name(), to(server.address, Transport::Udp), shortly()).await.unwrap_err();
    assert_eq!(trouble.kind, Kind::Timeout, "{trouble:?}");
}

#[tokio::test]
async fn every_negative_answer_is_distinguished() {
    let cases = [
        (Reply::Code(ResponseCode::NoError), Kind::NoRecords, "a.example has no address at"),
        (Reply::Code(ResponseCode::NXDomain), Kind::Nxdomain, "a.example does not exist at"),
        (
            Reply::Code(ResponseCode::ServFail),
            Kind::Servfail,
            "a.example could not be looked up (SERVFAIL) by",
        ),
        (Reply::Code(ResponseCode::Refused), Kind::QueryRefused, "a.example was refused (REFUSED) by"),
        (Reply::Code(ResponseCode::NotImp), Kind::BadAnswer, "a.example was answered with"),
    ];
    for (reply, kind, words) in cases {
        let server = FakeDns::start(reply).await;
        for transport in BOTH {
            let server = to(server.address, transport);
            let trouble = addresses(&name(), server, soon()).await.unwrap_err();
            assert_eq!(trouble.kind, kind, "{trouble:?}");
            assert!(
                trouble.detail.starts_with(words) && trouble.detail.ends_with(&server.to_string()),
                "{trouble:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_family_without_an_address_does_not_hide_what_went_wrong_with_the_other() {
    for broken in [RecordType::A, RecordType::AAAA] {
        let half = move |_: &Name, asked: RecordType| {
            Reply::Code(if asked == broken { ResponseCode::ServFail } else { ResponseCode::NoError })
        };
        let server = FakeDns::with(half, TransportSet::Both).await;
        for transport in BOTH {
            let trouble = addresses(&name(), to(server.address, transport), soon()).await.unwrap_err();
            assert_eq!(trouble.kind, Kind::Servfail, "{trouble:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_no_connection_times_out() {
    let server = to(testing::full_tcp().await, Transport::Tcp);
    let trouble = addresses(&name(), server, shortly()).await.unwrap_err();
    assert_eq!(trouble.kind, Kind::Timeout);
    assert!(trouble.detail.starts_with("a.example timed out after "), "{trouble:?}");
}

#[tokio::test]
async fn a_cut_answer_is_an_answer() {
    let server = FakeDns::start(Reply::Truncated).await;
    assert_eq!(addresses(&name(), to(server.address, Transport::Udp), soon()).await, Ok(()));
}

#[tokio::test]
async fn silence_times_out() {
    let server = FakeDns::start(Reply::Silence).await;
    for transport in BOTH {
        let server = to(server.address, transport);
        let trouble = addresses(&name(), server, shortly()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Timeout);
        assert!(trouble.detail.starts_with("a.example timed out after "), "{trouble:?}");
        assert!(trouble.detail.ends_with(&format!(" at {server}")), "{trouble:?}");
    }
}

#[tokio::test]
async fn what_is_not_an_answer_to_the_question_is_none() {
    for reply in [Reply::Garbage, Reply::OtherId, Reply::OtherQuestion] {
        let server = FakeDns::start(reply).await;
        // Over UDP the message may come from anybody, so the real answer is awaited.
        let trouble = addresses(&name(), to(server.address, Transport::Udp), shortly()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Timeout, "{reply:?} {trouble:?}");
        let trouble = addresses(&name(), to(server.address, Transport::Tcp), soon()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::BadAnswer, "{reply:?} {trouble:?}");
    }
}

#[tokio::test]
async fn a_port_on_which_nobody_listens_refuses_over_both_transports() {
    let address = testing::closed_tcp().await;
    for transport in BOTH {
        let trouble = addresses(&name(), to(address, transport), soon()).await.unwrap_err();
        assert_eq!(trouble.kind, Kind::Refused, "{trouble:?}");
        assert!(
            trouble.detail.contains("a.example") && trouble.detail.ends_with("(errno 111)"),
            "{trouble:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_is_reported() {
    let address = testing::closing_tcp().await;
    let trouble = addresses(&name(), to(address, Transport::Tcp), soon()).await.unwrap_err();
    assert_eq!(trouble.kind, Kind::Closed, "{trouble:?}");
}

#[test]
fn the_usual_port_is_not_shown() {
    let server = |address: &str| to(address.parse().unwrap(), Transport::Udp).to_string();
    assert_eq!(server("10.96.0.10:53"), "10.96.0.10 over udp");
    assert_eq!(server("10.96.0.10:54"), "10.96.0.10:54 over udp");
}
