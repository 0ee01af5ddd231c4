//! The part of JSON patch (RFC 6902) that we send, done as the API server does it.

use knr_core::patch::{NodePatch, PatchOp};
use serde_json::Value;

/// The document after the patch, or what stood in its way.
pub(crate) fn apply(document: &Value, patch: &NodePatch) -> Result<Value, String> {
    let mut document = document.clone();
    for op in &patch.0 {
        step(&mut document, op)?;
    }
    Ok(document)
}

fn step(document: &mut Value, op: &PatchOp) -> Result<(), String> {
    match op {
        PatchOp::Test { path, value } => {
            let found = document.pointer(path).unwrap_or(&Value::Null);
            if found == value { Ok(()) } else { Err(format!("{path} is {found}, not {value}")) }
        }
        PatchOp::Add { path, value } => {
            let (parent, key) = parent(document, path)?;
            match parent {
                Value::Object(map) => drop(map.insert(key, value.clone())),
                Value::Array(list) if key == "-" => list.push(value.clone()),
                Value::Array(list) => {
                    let at = index(&key, list.len() + 1)?;
                    list.insert(at, value.clone());
                }
                _ => return Err(format!("{path} is in nothing that has members")),
            }
            Ok(())
        }
        PatchOp::Remove { path } => {
            let (parent, key) = parent(document, path)?;
            match parent {
                Value::Object(map) => map.remove(&key).map(drop).ok_or(format!("there is no {path}")),
                Value::Array(list) => {
                    let at = index(&key, list.len())?;
                    list.remove(at);
                    Ok(())
                }
                _ => Err(format!("{path} is in nothing that has members")),
            }
        }
    }
}

fn parent<'d>(document: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), String> {
    let (parent, key) = path.rsplit_once('/').ok_or(format!("{path} is no path"))?;
    let found = document.pointer_mut(parent).ok_or(format!("there is no {parent}"))?;
    Ok((found, key.replace("~1", "/").replace("~0", "~")))
}

fn index(key: &str, end: usize) -> Result<usize, String> {
    key.parse().ok().filter(|at| *at < end).ok_or(format!("there is no element {key}"))
}
