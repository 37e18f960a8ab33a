//! OTLP over gRPC: one call of `TraceService/Export` on a connection of its own.

use std::error::Error;
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
    let called = called.map_err(|_| format!("no answer within {max_time:?}"))?;
    called.map_err(|error| error.to_string())
}

async fn call(endpoint: &str, message: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let uri: Uri = endpoint.parse()?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(DEFAULT_COLLECTOR_PORT);
    let connection = TcpStream::connect((host, port)).await?;
    let (mut client, connection) = h2::client::handshake(connection).await?;
    let driver = tokio::spawn(connection);
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::post(format!("http://{authority}{EXPORT_PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = client.send_request(request, false)?;
    body.send_data(frame(message), true)?;
    let response = response.await?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("status {}", response.status()).into());
    }
    // If a call fails at once, the header of the response has its status.
    if let Some(status) = grpc_status(response.headers()) {
        return Ok(status?);
    }
    let mut stream = response.into_body();
    while let Some(data) = stream.data().await {
        stream.flow_control().release_capacity(data?.len())?;
    }
    let trailers = stream.trailers().await?.unwrap_or_default();
    driver.abort();
    Ok(grpc_status(&trailers).unwrap_or_else(|| Err("no grpc-status".to_owned()))?)
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
