"""Records that Kafka 4.3 writes into `__consumer_offsets` (module group-coordinator), and the
consumer protocol's messages inside them.
"""

SCHEMAS = """
LegacyOffsetCommitKey 0 versions 0-0
  group string
  topic string
  partition int32

LegacyOffsetCommitValue 0 versions 0-0
  offset int64
  metadata string
  commitTimestamp int64

OffsetCommitKey 1 versions 0-0
  group string
  topic string
  partition int32

OffsetCommitValue 1 versions 0-4 flexible 4+
  offset int64
  leaderEpoch int32 3+
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1-1
  topicId uuid 4+ tag 0 = AAAAAAAAAAAAAAAAAAAAAA

GroupMetadataKey 2 versions 0-0
  group string

GroupMetadataValue 2 versions 0-4 flexible 4+
  protocolType string
  generation int32
  protocol string?
  leader string?
  currentStateTimestamp int64 2+
  members []struct
    memberId string
    groupInstanceId string? 3+
    clientId string
    clientHost string
    rebalanceTimeout int32 1+
    sessionTimeout int32
    subscription bytes
    assignment bytes

ConsumerGroupMetadataKey 3 versions 0-0
  groupId string

ConsumerGroupMetadataValue 3 versions 0-0 flexible 0+
  epoch int32
  metadataHash int64 tag 0 = 0

ConsumerGroupPartitionMetadataKey 4 versions 0-0
  groupId string

ConsumerGroupPartitionMetadataValue 4 versions 0-0 flexible 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string

ConsumerGroupMemberMetadataKey 5 versions 0-0
  groupId string
  memberId string

ConsumerGroupMemberMetadataValue 5 versions 0-0 flexible 0+
  instanceId string?
  rackId string?
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string?
  rebalanceTimeoutMs int32
  serverAssignor string?
  classicMemberMetadata struct? tag 0 = {}
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes

ConsumerGroupTargetAssignmentMetadataKey 6 versions 0-0
  groupId string

ConsumerGroupTargetAssignmentMetadataValue 6 versions 0-0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag 0 = 0

ConsumerGroupTargetAssignmentMemberKey 7 versions 0-0
  groupId string
  memberId string

ConsumerGroupTargetAssignmentMemberValue 7 versions 0-0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32

ConsumerGroupCurrentMemberAssignmentKey 8 versions 0-0
  groupId string
  memberId string

ConsumerGroupCurrentMemberAssignmentValue 8 versions 0-0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32? tag 0 = []

ShareGroupMemberMetadataKey 10 versions 0-0
  groupId string
  memberId string

ShareGroupMemberMetadataValue 10 versions 0-0 flexible 0+
  rackId string?
  clientId string
  clientHost string
  subscribedTopicNames []string

ShareGroupMetadataKey 11 versions 0-0
  groupId string

ShareGroupMetadataValue 11 versions 0-0 flexible 0+
  epoch int32
  metadataHash int64

ShareGroupTargetAssignmentMetadataKey 12 versions 0-0
  groupId string

ShareGroupTargetAssignmentMetadataValue 12 versions 0-0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag 0 = 0

ShareGroupTargetAssignmentMemberKey 13 versions 0-0
  groupId string
  memberId string

ShareGroupTargetAssignmentMemberValue 13 versions 0-0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32

ShareGroupCurrentMemberAssignmentKey 14 versions 0-0
  groupId string
  memberId string

ShareGroupCurrentMemberAssignmentValue 14 versions 0-0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32

ShareGroupStatePartitionMetadataKey 15 versions 0-0
  groupId string

ShareGroupStatePartitionMetadataValue 15 versions 0-0 flexible 0+
  initializingTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string

ConsumerGroupRegularExpressionKey 16 versions 0-0
  groupId string
  regularExpression string

ConsumerGroupRegularExpressionValue 16 versions 0-0 flexible 0+
  topics []string
  version int64
  timestamp int64

StreamsGroupMetadataKey 17 versions 0-0
  groupId string

StreamsGroupMetadataValue 17 versions 0-0 flexible 0+
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 tag 0 = -1
  lastAssignmentConfigs []struct? tag 1 = []
    key string
    value string

StreamsGroupMemberMetadataKey 19 versions 0-0
  groupId string
  memberId string

StreamsGroupMemberMetadataValue 19 versions 0-0 flexible 0+
  instanceId string?
  rackId string?
  clientId string
  clientHost string
  rebalanceTimeoutMs int32
  topologyEpoch int32
  processId string
  userEndpoint struct?
    host string
    port uint16
  clientTags []struct
    key string
    value string

StreamsGroupTargetAssignmentMetadataKey 20 versions 0-0
  groupId string

StreamsGroupTargetAssignmentMetadataValue 20 versions 0-0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag 0 = 0

StreamsGroupTargetAssignmentMemberKey 21 versions 0-0
  groupId string
  memberId string

StreamsGroupTargetAssignmentMemberValue 21 versions 0-0 flexible 0+
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32

StreamsGroupCurrentMemberAssignmentKey 22 versions 0-0
  groupId string
  memberId string

StreamsGroupCurrentMemberAssignmentValue 22 versions 0-0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  standbyTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  warmupTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  activeTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  standbyTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []
  warmupTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag 0 = []

StreamsGroupTopologyKey 23 versions 0-0
  groupId string

StreamsGroupTopologyValue 23 versions 0-0 flexible 0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    copartitionGroups []struct
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16

ConsumerProtocolSubscription versions 0-3
  topics []string
  userData bytes?
  ownedPartitions []struct 1+
    topic string
    partitions []int32
  generationId int32 2+
  rackId string? 3+

ConsumerProtocolAssignment versions 0-3
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes?
"""
