//! Answers that a real API server gave, broken in many ways: whatever comes of it, nothing panics, and nothing takes more memory
//! than what was received allows. The same bytes are tried each time.
//!
//! `RECORD=1 make test-e2e ARGS='--test protobuf'` records the answers again.

use http::Response;
use http::header::CONTENT_TYPE;
use kube::client::Body;
use kube::core::{Status, WatchEvent};
use serde_json::Value;

use super::*;
use crate::answer::{events, whole};
use crate::observe::{SlimInitPod, SlimNode, SlimWorker};
use crate::read::List;

const NODE: &[u8] = include_bytes!("recorded/node.bin");
const NODES: &[u8] = include_bytes!("recorded/nodes.bin");
const PODS: &[u8] = include_bytes!("recorded/pods.bin");
const REFUSAL: &[u8] = include_bytes!("recorded/refusal.bin");
const WATCH: &[u8] = include_bytes!("recorded/watch.bin");
/// How often each answer is broken.
const TIMES: usize = 4_000;
/// A watch is read piece by piece, which takes longer.
const WATCHES: usize = 200;
/// A time is the most that can be made of the fewest bytes: twenty letters out of two bytes.
const MOST_FOR_A_BYTE: usize = 16;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % below.max(1)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next(256)).unwrap_or(u8::MAX)
    }
}

/// The same with a few changes: bytes replaced, added, removed, repeated, or made to claim the largest length there is.
fn broken(whole: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=numbers.next(4) {
        let at = numbers.next(bytes.len());
        let end = (at + numbers.next(40)).min(bytes.len());
        match numbers.next(6) {
            0 if !bytes.is_empty() => bytes[at] = numbers.byte(),
            1 => bytes.insert(at, numbers.byte()),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, again));
            }
            4 => drop(bytes.splice(at..end, [0xff; 9].into_iter().chain([0x01]))),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// How much was made of an answer: its letters, and one for each value.
fn weight(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Reads it as everything that it may be taken for, and says whether it could be read at all.
fn read(bytes: &[u8]) -> bool {
    drop(answer::<SlimNode>(bytes));
    drop(answer::<SlimWorker>(bytes).map(SlimWorker::view));
    drop(answer::<SlimInitPod>(bytes).map(SlimInitPod::view));
    drop(answer::<List<SlimNode>>(bytes));
    drop(answer::<List<SlimWorker>>(bytes));
    drop(answer::<Status>(bytes));
    drop(event::<WatchEvent<SlimNode>>(bytes));
    let value = answer::<Value>(bytes);
    if let Ok(value) = &value {
        let (weight, most) = (weight(value), MOST_FOR_A_BYTE * bytes.len() + 100);
        assert!(weight <= most, "{weight} out of {} bytes", bytes.len());
    }
    value.is_ok()
}

#[test]
fn a_recorded_answer_is_whole() {
    assert_eq!(answer::<SlimNode>(NODE).unwrap().metadata.name, "full");
    assert_eq!(answer::<List<SlimNode>>(NODES).unwrap().items.len(), 6);
    assert!(answer::<List<SlimWorker>>(PODS).unwrap().items.len() > 10);
    assert_eq!(answer::<Status>(REFUSAL).unwrap().code, 404);
}

#[test]
fn a_broken_answer_is_refused_or_read_within_its_bounds() {
    let mut numbers = Numbers(7);
    for whole in [NODE, NODES, PODS, REFUSAL] {
        assert!(read(whole));
        let readable = (0..TIMES).filter(|_| read(&broken(whole, &mut numbers))).count();
        assert!(
            (TIMES / 100..TIMES).contains(&readable),
            "{readable}: too many or too few are still readable"
        );
    }
}

#[test]
fn an_answer_that_is_cut_off_anywhere_is_refused_or_read() {
    for end in 0..PODS.len() {
        read(&PODS[..end]);
    }
}

#[tokio::test]
async fn a_broken_watch_comes_to_its_end() {
    let mut numbers = Numbers(7);
    assert!(seen(WATCH.to_vec()).await.1 > 10);
    for _ in 0..WATCHES {
        let bytes = broken(WATCH, &mut numbers);
        let length = bytes.len();
        let (frames, _) = seen(bytes).await;
        assert!(frames <= length / 4 + 1, "each frame has its length before it");
    }
    drop(whole::<List<SlimWorker>>(Response::new(Body::from(PODS.to_vec()))).await.unwrap());
}

/// How many frames were found, and how many of them could be read.
async fn seen(bytes: Vec<u8>) -> (usize, usize) {
    let form = "application/vnd.kubernetes.protobuf;stream=watch";
    let response = Response::builder().header(CONTENT_TYPE, form).body(Body::from(bytes)).unwrap();
    let frames: Vec<_> = futures::StreamExt::collect(events::<SlimWorker>(response).await.unwrap()).await;
    (frames.len(), frames.iter().filter(|frame| frame.is_ok()).count())
}
