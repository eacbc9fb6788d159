"""Records that Kafka 4.3 writes into `__share_group_state` (module share-coordinator)."""

SCHEMAS = """
ShareSnapshotKey 0 versions 0-0
  groupId string
  topicId uuid
  partition int32

ShareSnapshotValue 0 versions 0-0 flexible 0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag 0 = -1
  createTimestamp int64
  writeTimestamp int64
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16

ShareUpdateKey 1 versions 0-0
  groupId string
  topicId uuid
  partition int32

ShareUpdateValue 1 versions 0-0 flexible 0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 tag 0 = -1
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
"""
