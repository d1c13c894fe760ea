//! The traits of tokio.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = ready!(Self::poll_read(&self, task, into.initialize_unfilled()))?;
        into.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_with(task, Self::try_fill))?;
        Poll::Ready(Ok(this.filled()))
    }

    fn consume(self: Pin<&mut Self>, length: usize) {
        self.get_mut().skip(length);
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, task, from)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_finish(&self, task)
    }
}
