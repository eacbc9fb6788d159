"""Records that Kafka 4.3 writes into `__transaction_state` (module transaction-coordinator)."""

SCHEMAS = """
TransactionLogKey 0 versions 0-0
  transactionalId string

TransactionLogValue 0 versions 0-1 flexible 1+
  producerId int64
  previousProducerId int64 1+ tag 0 = -1
  nextProducerId int64 1+ tag 1 = -1
  producerEpoch int16
  nextProducerEpoch int16 1+ tag 3 = -1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct?
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ tag 2 = 0
"""
