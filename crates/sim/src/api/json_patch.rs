//! JSON patch as the API server applies it.
//!
//! It deviates from the standard in one point, on which the product's patches rely: a test for null passes where the
//! path does not exist.

use serde_json::Value;

/// Applies all operations or none.
pub(crate) fn apply(document: &Value, ops: &Value) -> Result<Value, String> {
    let mut changed = document.clone();
    for op in ops.as_array().into_iter().flatten() {
        step(&mut changed, op)?;
    }
    prune(&mut changed);
    Ok(changed)
}

fn step(document: &mut Value, op: &Value) -> Result<(), String> {
    let text = |name: &str| op.get(name).and_then(Value::as_str).unwrap_or_default();
    let path = text("path");
    let (parent_path, last) = path.rsplit_once('/').ok_or_else(|| format!("{path}: not a path"))?;
    let key = last.replace("~1", "/").replace("~0", "~");
    let value = op.get("value").cloned().unwrap_or(Value::Null);
    let parent = document.pointer_mut(parent_path).ok_or_else(|| format!("{parent_path}: missing"))?;
    match text("op") {
        "test" => {
            let found = child(parent, &key).cloned().unwrap_or(Value::Null);
            if found == value { Ok(()) } else { Err(format!("{path}: is {found}, not {value}")) }
        }
        "add" => add(parent, &key, value).ok_or_else(|| format!("{path}: cannot add")),
        "remove" => remove(parent, &key).ok_or_else(|| format!("{path}: nothing to remove")),
        other => Err(format!("{other}: unknown")),
    }
}

fn child<'a>(parent: &'a Value, key: &str) -> Option<&'a Value> {
    match parent {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Option<()> {
    match parent {
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            let index = key.parse::<usize>().ok().filter(|index| *index <= list.len())?;
            list.insert(index, value);
        }
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(parent: &mut Value, key: &str) -> Option<()> {
    match parent {
        Value::Array(list) => {
            let index = key.parse::<usize>().ok().filter(|index| *index < list.len())?;
            list.remove(index);
        }
        Value::Object(map) => {
            map.remove(key)?;
        }
        _ => return None,
    }
    Some(())
}

/// Removes empty lists and maps, which the API server does not store.
pub(crate) fn prune(node: &mut Value) {
    for (parent, key) in [("/spec", "taints"), ("/metadata", "labels"), ("/metadata", "annotations")] {
        if let Some(Value::Object(map)) = node.pointer_mut(parent)
            && map.get(key).is_some_and(is_empty)
        {
            map.remove(key);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => value.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_are_applied_together_or_not_at_all() {
        let node = json!({"metadata": {"uid": "u"}, "spec": {"taints": [{"key": "a"}, {"key": "b"}]}});
        let good = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/labels", "value": null},
            {"op": "add", "path": "/metadata/labels", "value": {"x": "1"}},
            {"op": "add", "path": "/metadata/labels/a~1b", "value": "2"},
            {"op": "remove", "path": "/spec/taints/0"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": "c"}},
        ]);
        let changed = apply(&node, &good).unwrap();
        assert_eq!(changed["metadata"]["labels"], json!({"x": "1", "a/b": "2"}));
        assert_eq!(changed["spec"]["taints"], json!([{"key": "b"}, {"key": "c"}]));
        for bad in [
            json!([{"op": "test", "path": "/metadata/uid", "value": "other"}]),
            json!([{"op": "test", "path": "/spec/taints", "value": null}]),
            json!([{"op": "test", "path": "/spec/taints/0", "value": {"key": "b"}}]),
            json!([{"op": "remove", "path": "/spec/taints/2"}]),
            json!([{"op": "remove", "path": "/metadata/labels/x"}]),
            json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
            json!([{"op": "move", "path": "/metadata/uid"}]),
        ] {
            assert!(apply(&node, &bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_emptied_list_is_gone() {
        let node = json!({"metadata": {}, "spec": {"taints": [{"key": "a"}]}});
        let changed = apply(&node, &json!([{"op": "remove", "path": "/spec/taints/0"}])).unwrap();
        assert_eq!(changed, json!({"metadata": {}, "spec": {}}));
    }
}
