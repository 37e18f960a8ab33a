//! OTLP over gRPC: one call of `TraceService/Export` on a connection of its own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Uri};
use tokio::net::TcpStream;
use tokio::time::timeout;

const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The most characters of a collector's error message that are logged.
const MAX_ERROR_CHARS: usize = 200;
/// The port of the collector if the URL has none.
const DEFAULT_COLLECTOR_PORT: u16 = 4317;

/// Sends a message to the collector at this `http` URL.
///
/// # Errors
/// Returns what went wrong if the collector did not accept the message within `max_time`.
pub fn export(endpoint: &str, message: &[u8], max_time: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let called = runtime.block_on(async { timeout(max_time, call(endpoint, message)).await });
    called.map_err(|_| format!("no answer within {max_time:?}"))?
}

async fn call(endpoint: &str, message: &[u8]) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let uri: Uri = endpoint.parse().map_err(|error| text(&error))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let connection =
        TcpStream::connect((host, uri.port_u16().unwrap_or(DEFAULT_COLLECTOR_PORT))).await;
    let connected = h2::client::handshake(connection.map_err(|error| text(&error))?).await;
    let (mut client, connection) = connected.map_err(|error| text(&error))?;
    let driver = tokio::spawn(connection);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::post(format!("http://{authority}{EXPORT_PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(|error| text(&error))?;
    let sent = client.send_request(request, false);
    let (response, mut body) = sent.map_err(|error| text(&error))?;
    body.send_data(frame(message), true).map_err(|error| text(&error))?;
    let response = response.await.map_err(|error| text(&error))?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("status {}", response.status()));
    }
    // If a call fails at once, the header of the response has its status.
    if let Some(status) = grpc_status(response.headers()) {
        return status;
    }
    let mut stream = response.into_body();
    while let Some(data) = stream.data().await {
        let length = data.map_err(|error| text(&error))?.len();
        stream.flow_control().release_capacity(length).map_err(|error| text(&error))?;
    }
    let trailers = stream.trailers().await.map_err(|error| text(&error))?.unwrap_or_default();
    driver.abort();
    grpc_status(&trailers).unwrap_or_else(|| Err("no grpc-status".to_owned()))
}

/// Puts the prefix of gRPC before a message: a flag for "not compressed", and the length.
fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Returns the outcome of the call that these fields report; `None` if they have no `grpc-status`.
fn grpc_status(fields: &HeaderMap) -> Option<Result<(), String>> {
    let status = fields.get("grpc-status")?;
    let message = fields.get("grpc-message").map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.chars().take(MAX_ERROR_CHARS).collect::<String>()
    });
    Some(match status.as_bytes() {
        b"0" => Ok(()),
        _ => {
            let status = String::from_utf8_lossy(status.as_bytes());
            Err(format!("grpc-status {status} {}", message.unwrap_or_default()))
        }
    })
}
