"""Records that Kafka 4.3 writes into `__remote_log_metadata` (module storage)."""

SCHEMAS = """
RemoteLogSegmentMetadataRecord 0 versions 0-0 flexible 0+
  remoteLogSegmentId struct
    topicIdPartition struct
      name string
      id uuid
      partition int32
    id uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []struct
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes?
  remoteLogSegmentState int8
  txnIndexEmpty boolean tag 0 = false

RemoteLogSegmentMetadataUpdateRecord 1 versions 0-0 flexible 0+
  remoteLogSegmentId struct
    topicIdPartition struct
      name string
      id uuid
      partition int32
    id uuid
  brokerId int32
  eventTimestampMs int64
  customMetadata bytes?
  remoteLogSegmentState int8

RemotePartitionDeleteMetadataRecord 2 versions 0-0 flexible 0+
  topicIdPartition struct
    name string
    id uuid
    partition int32
  brokerId int32
  eventTimestampMs int64
  remotePartitionDeleteState int8

RemoteLogSegmentMetadataSnapshotRecord 3 versions 0-0 flexible 0+
  segmentId uuid
  startOffset int64
  endOffset int64
  brokerId int32
  maxTimestampMs int64
  eventTimestampMs int64
  segmentLeaderEpochs []struct
    leaderEpoch int32
    offset int64
  segmentSizeInBytes int32
  customMetadata bytes?
  remoteLogSegmentState int8
  txnIndexEmpty boolean tag 0 = false
"""
