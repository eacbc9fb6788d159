"""Control records that a Kafka 4.3 KRaft quorum writes to `__cluster_metadata` (module clients)."""

SCHEMAS = """
LeaderChangeMessage versions 0-1 flexible 0+
  version int16
  leaderId int32
  voters []struct
    voterId int32
    voterDirectoryId uuid 1+
  grantingVoters []struct
    voterId int32
    voterDirectoryId uuid 1+

SnapshotHeaderRecord versions 0-0 flexible 0+
  version int16
  lastContainedLogTimestamp int64

SnapshotFooterRecord versions 0-0 flexible 0+
  version int16

KRaftVersionRecord versions 0-0 flexible 0+
  version int16
  kRaftVersion int16

VotersRecord versions 0-0 flexible 0+
  version int16
  voters []struct
    voterId int32
    voterDirectoryId uuid
    endpoints []struct
      name string
      host string
      port uint16
    kRaftVersionFeature struct
      minSupportedVersion int16
      maxSupportedVersion int16
"""
