//! Memory of states that nobody has any more, for the next ones. Once the event log is full each change lets go of one
//! state, and the change after it is made in its memory: a renewal allocates nothing.

use super::event_log::Event;
use super::object::Object;
use std::rc::Rc;

/// States and buffers to be used again, a few of each: what a turn or two let go of.
#[derive(Debug, Default)]
pub(super) struct Recycler {
    objects: Vec<Rc<Object>>,
    /// By capacity, in steps of [`STEP_BYTES`]: so that a buffer that lives as long as a Lease is hardly larger than
    /// what is in it.
    buffers: Vec<Vec<Vec<u8>>>,
}

/// States that are kept at the most.
const OBJECTS_MAX: usize = 256;
/// Larger states are not kept, by [`Object::memory_bytes`].
const OBJECT_BYTES_MAX: usize = 16 * 1024;
/// Buffers of one size that are kept at the most.
const BUFFERS_MAX: usize = 256;
/// Buffers are as large as a multiple of this.
const STEP_BYTES: usize = 32;
/// Larger buffers are not kept.
const BUFFER_BYTES_MAX: usize = 4096;

impl Recycler {
    /// Takes what an event that is over had for itself.
    pub(super) fn give(&mut self, event: Event) {
        self.give_object(event.after);
        if let Some(before) = event.before {
            self.give_object(before);
        }
    }

    fn give_object(&mut self, mut object: Rc<Object>) {
        // Somebody who still has it lets go of it himself.
        let Some(unshared) = Rc::get_mut(&mut object) else { return };
        for buffer in unshared.take_buffers().into_iter().flatten() {
            self.give_buffer(buffer);
        }
        // It holds its base until it is used again.
        if self.objects.len() < OBJECTS_MAX && unshared.memory_bytes() <= OBJECT_BYTES_MAX {
            self.objects.push(object);
        }
    }

    /// An empty buffer for about `bytes`.
    pub(super) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let step = bytes.div_ceil(STEP_BYTES);
        let kept = self.buffers.get_mut(step).and_then(Vec::pop);
        kept.unwrap_or_else(|| Vec::with_capacity(step * STEP_BYTES))
    }

    /// Takes a buffer back.
    pub(super) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        let step = buffer.capacity() / STEP_BYTES;
        if !buffer.capacity().is_multiple_of(STEP_BYTES) || buffer.capacity() > BUFFER_BYTES_MAX {
            return;
        }
        buffer.clear();
        if self.buffers.len() <= step {
            self.buffers.resize_with(step + 1, Vec::new);
        }
        let same = &mut self.buffers[step];
        if same.len() < BUFFERS_MAX {
            same.push(buffer);
        }
    }

    /// `object` in shared memory.
    pub(super) fn share(&mut self, object: Object) -> Rc<Object> {
        let Some(mut place) = self.objects.pop() else { return Rc::new(object) };
        match Rc::get_mut(&mut place) {
            Some(old) => {
                *old = object;
                place
            }
            None => Rc::new(object),
        }
    }
}
