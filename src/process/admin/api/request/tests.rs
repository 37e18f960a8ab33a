use super::*;

#[test]
fn a_change_that_found_the_store_busy_says_that_nothing_was_changed() {
    let message = |error: ApiError| {
        let body: Value = serde_json::from_slice(error.into_response().body()).unwrap();
        body["message"].as_str().unwrap().to_owned()
    };
    let change = message(ApiError::store_busy());
    assert!(change.ends_with("Send the request again. Nothing was changed."), "{change}");
    let read = ApiError::store_busy().with_change(ChangeAfterStoreFailure::NotWanted);
    assert!(message(read).ends_with("Send the request again."));
}
