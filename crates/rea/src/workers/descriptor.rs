//! Open descriptors, sent over a Unix socket from the server to a warden.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// A message must have at least a byte to carry something.
const BYTE: [u8; 1] = [b'\n'];

/// Most in a message.
const MOST: usize = 8;

/// Sends copies of them.
pub(super) fn send(socket: &impl AsFd, descriptors: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    if !message.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    sendmsg(socket, &[IoSlice::new(&BYTE)], &mut message, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes those that were sent first of all; waits for them. They are close-on-exec.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut byte = BYTE;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    let descriptors = message.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect()),
        _ => None,
    });
    descriptors.ok_or_else(|| io::Error::other("the server sent no descriptors"))
}
