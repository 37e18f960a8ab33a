//! The traits that Pingora requires of a stream, apart from reading and writing: digests, id, end.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::AsyncWriteExt;

use super::ClientIo;

#[async_trait]
impl Shutdown for ClientIo {
    async fn shutdown(&mut self) {
        // If the client has left, the shutdown fails, and riskgate has nothing left to do.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for ClientIo {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for ClientIo {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.pingora_stream()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.pingora_stream()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for ClientIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.pingora_stream().map(|stream| stream.get_timing_digest()).unwrap_or_default()
    }
}

impl GetProxyDigest for ClientIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.pingora_stream()?.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.proxied_digest.clone().or_else(|| self.inner.socket_digest())
    }
}

impl Peek for ClientIo {}
