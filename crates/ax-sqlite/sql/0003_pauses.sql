-- Since when a queue is paused (NULL = it is not, or was before this step), and why.
ALTER TABLE queues ADD COLUMN paused_at INTEGER;
ALTER TABLE queues ADD COLUMN reason TEXT;
