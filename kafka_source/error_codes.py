"""The error codes of Kafka and librdkafka: their KIP-1050 category, and the advice for the user.

Codes from -1 up are brokers' codes, with the names of Kafka 4.3's `Errors`. Codes below -1 are librdkafka's own, with
its names (`_TRANSPORT`). The category comes from KIP-1050 or from the class tree of Kafka 4.3's Java client. A code
without a category is invalid configuration if a setting or a permission causes it, else application-recoverable, as the
KIP requires. The table lists an application-recoverable code only if another module uses the code, or librdkafka has no
name for it. librdkafka's flags `retriable()`, `txn_requires_abort()` and `fatal()` differ from the KIP, so they are not
used.
"""

from enum import Enum, IntEnum


class Category(Enum):
    """KIP-1050's five categories of errors; the value is the name in docs and messages."""

    RETRIABLE = "retriable"
    REFRESH_RETRIABLE = "refresh-retriable"
    ABORTABLE = "abortable"
    APPLICATION_RECOVERABLE = "application-recoverable"
    INVALID_CONFIGURATION = "invalid-configuration"


NONE = 0
"""The code of a response without an error."""


class ErrorCode(IntEnum):
    """An error code. The prefix LOCAL_ marks librdkafka's own codes, its "local errors".

    Attributes:
        category: Its category.
    """

    category: Category

    def __new__(cls, code: int, category: Category) -> "ErrorCode":
        """Return the member for a code."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.category = category
        return member

    @staticmethod
    def find(code: int) -> "ErrorCode | None":
        """Return the member for a code; None: the code is not in the table, so it is application-recoverable."""
        return _BY_NUMBER.get(code)

    @property
    def kafka_name(self) -> str:
        """The name in Kafka's protocol or in librdkafka, whose own codes begin with an underscore."""
        return self.name.removeprefix("LOCAL") if self < ErrorCode.UNKNOWN_SERVER_ERROR else self.name

    # Retry the same request after a back-off.
    CORRUPT_MESSAGE = 2, Category.RETRIABLE
    REQUEST_TIMED_OUT = 7, Category.RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, Category.RETRIABLE
    NOT_ENOUGH_REPLICAS = 19, Category.RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, Category.RETRIABLE
    NOT_CONTROLLER = 41, Category.RETRIABLE
    CONCURRENT_TRANSACTIONS = 51, Category.RETRIABLE
    FETCH_SESSION_ID_NOT_FOUND = 70, Category.RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, Category.RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, Category.RETRIABLE
    OFFSET_NOT_AVAILABLE = 78, Category.RETRIABLE
    UNSTABLE_OFFSET_COMMIT = 88, Category.RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, Category.RETRIABLE
    FETCH_SESSION_TOPIC_ID_ERROR = 106, Category.RETRIABLE
    SHARE_SESSION_NOT_FOUND = 122, Category.RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, Category.RETRIABLE
    SHARE_SESSION_LIMIT_REACHED = 133, Category.RETRIABLE
    LOCAL_INVALID_DIFFERENT_RECORD = -138, Category.RETRIABLE
    LOCAL_RETRY = -153, Category.RETRIABLE
    LOCAL_PARTIAL = -158, Category.RETRIABLE
    LOCAL_INTR = -163, Category.RETRIABLE
    LOCAL_WAIT_CACHE = -164, Category.RETRIABLE
    LOCAL_TIMED_OUT_QUEUE = -166, Category.RETRIABLE
    LOCAL_PREV_IN_PROGRESS = -177, Category.RETRIABLE
    LOCAL_IN_PROGRESS = -178, Category.RETRIABLE
    LOCAL_WAIT_COORD = -180, Category.RETRIABLE
    LOCAL_ISR_INSUFF = -183, Category.RETRIABLE
    LOCAL_QUEUE_FULL = -184, Category.RETRIABLE
    LOCAL_TIMED_OUT = -185, Category.RETRIABLE
    LOCAL_PARTITION_EOF = -191, Category.RETRIABLE
    LOCAL_MSG_TIMED_OUT = -192, Category.RETRIABLE
    LOCAL_FAIL = -196, Category.RETRIABLE
    # Refresh metadata or find the coordinator, then retry.
    UNKNOWN_TOPIC_OR_PARTITION = 3, Category.REFRESH_RETRIABLE
    LEADER_NOT_AVAILABLE = 5, Category.REFRESH_RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, Category.REFRESH_RETRIABLE
    BROKER_NOT_AVAILABLE = 8, Category.REFRESH_RETRIABLE
    REPLICA_NOT_AVAILABLE = 9, Category.REFRESH_RETRIABLE
    NETWORK_EXCEPTION = 13, Category.REFRESH_RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, Category.REFRESH_RETRIABLE
    NOT_COORDINATOR = 16, Category.REFRESH_RETRIABLE
    KAFKA_STORAGE_ERROR = 56, Category.REFRESH_RETRIABLE
    LISTENER_NOT_FOUND = 72, Category.REFRESH_RETRIABLE
    FENCED_LEADER_EPOCH = 74, Category.REFRESH_RETRIABLE
    MEMBER_ID_REQUIRED = 79, Category.REFRESH_RETRIABLE
    PREFERRED_LEADER_NOT_AVAILABLE = 80, Category.REFRESH_RETRIABLE
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, Category.REFRESH_RETRIABLE
    ELECTION_NOT_NEEDED = 84, Category.REFRESH_RETRIABLE
    UNKNOWN_TOPIC_ID = 100, Category.REFRESH_RETRIABLE
    INCONSISTENT_TOPIC_ID = 103, Category.REFRESH_RETRIABLE
    REBOOTSTRAP_REQUIRED = 129, Category.REFRESH_RETRIABLE
    LOCAL_DESTROY_BROKER = -137, Category.REFRESH_RETRIABLE
    LOCAL_UNKNOWN_BROKER = -146, Category.REFRESH_RETRIABLE
    LOCAL_OUTDATED = -167, Category.REFRESH_RETRIABLE
    LOCAL_NODE_UPDATE = -182, Category.REFRESH_RETRIABLE
    LOCAL_ALL_BROKERS_DOWN = -187, Category.REFRESH_RETRIABLE
    LOCAL_UNKNOWN_TOPIC = -188, Category.REFRESH_RETRIABLE
    LOCAL_UNKNOWN_PARTITION = -190, Category.REFRESH_RETRIABLE
    LOCAL_RESOLVE = -193, Category.REFRESH_RETRIABLE
    LOCAL_TRANSPORT = -195, Category.REFRESH_RETRIABLE
    # Abort the transaction; the producer remains usable.
    TRANSACTION_ABORTABLE = 120, Category.ABORTABLE
    LOCAL_PURGE_INFLIGHT = -151, Category.ABORTABLE
    LOCAL_PURGE_QUEUE = -152, Category.ABORTABLE
    # Create a new producer or member, and resume from the last durable position.
    UNKNOWN_SERVER_ERROR = -1, Category.APPLICATION_RECOVERABLE
    OFFSET_OUT_OF_RANGE = 1, Category.APPLICATION_RECOVERABLE
    INVALID_FETCH_SIZE = 4, Category.APPLICATION_RECOVERABLE
    STALE_CONTROLLER_EPOCH = 11, Category.APPLICATION_RECOVERABLE
    ILLEGAL_GENERATION = 22, Category.APPLICATION_RECOVERABLE
    UNKNOWN_MEMBER_ID = 25, Category.APPLICATION_RECOVERABLE
    REBALANCE_IN_PROGRESS = 27, Category.APPLICATION_RECOVERABLE
    INVALID_REQUEST = 42, Category.APPLICATION_RECOVERABLE
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, Category.APPLICATION_RECOVERABLE
    DUPLICATE_SEQUENCE_NUMBER = 46, Category.APPLICATION_RECOVERABLE
    INVALID_PRODUCER_EPOCH = 47, Category.APPLICATION_RECOVERABLE
    INVALID_TXN_STATE = 48, Category.APPLICATION_RECOVERABLE
    INVALID_PRODUCER_ID_MAPPING = 49, Category.APPLICATION_RECOVERABLE
    OPERATION_NOT_ATTEMPTED = 55, Category.APPLICATION_RECOVERABLE
    NON_EMPTY_GROUP = 68, Category.APPLICATION_RECOVERABLE
    GROUP_ID_NOT_FOUND = 69, Category.APPLICATION_RECOVERABLE
    FENCED_INSTANCE_ID = 82, Category.APPLICATION_RECOVERABLE
    GROUP_SUBSCRIBED_TO_TOPIC = 86, Category.APPLICATION_RECOVERABLE
    PRODUCER_FENCED = 90, Category.APPLICATION_RECOVERABLE
    SNAPSHOT_NOT_FOUND = 98, Category.APPLICATION_RECOVERABLE
    POSITION_OUT_OF_RANGE = 99, Category.APPLICATION_RECOVERABLE
    DUPLICATE_BROKER_REGISTRATION = 101, Category.APPLICATION_RECOVERABLE
    BROKER_ID_NOT_REGISTERED = 102, Category.APPLICATION_RECOVERABLE
    INCONSISTENT_CLUSTER_ID = 104, Category.APPLICATION_RECOVERABLE
    TRANSACTIONAL_ID_NOT_FOUND = 105, Category.APPLICATION_RECOVERABLE
    INELIGIBLE_REPLICA = 107, Category.APPLICATION_RECOVERABLE
    NEW_LEADER_ELECTED = 108, Category.APPLICATION_RECOVERABLE
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, Category.APPLICATION_RECOVERABLE
    FENCED_MEMBER_EPOCH = 110, Category.APPLICATION_RECOVERABLE
    UNRELEASED_INSTANCE_ID = 111, Category.APPLICATION_RECOVERABLE
    STALE_MEMBER_EPOCH = 113, Category.APPLICATION_RECOVERABLE
    LOCAL_FENCED = -144, Category.APPLICATION_RECOVERABLE
    # The user must change a setting or a permission; a retry does not help.
    MESSAGE_TOO_LARGE = 10, Category.INVALID_CONFIGURATION
    OFFSET_METADATA_TOO_LARGE = 12, Category.INVALID_CONFIGURATION
    INVALID_TOPIC_EXCEPTION = 17, Category.INVALID_CONFIGURATION
    RECORD_LIST_TOO_LARGE = 18, Category.INVALID_CONFIGURATION
    INVALID_REQUIRED_ACKS = 21, Category.INVALID_CONFIGURATION
    INCONSISTENT_GROUP_PROTOCOL = 23, Category.INVALID_CONFIGURATION
    INVALID_GROUP_ID = 24, Category.INVALID_CONFIGURATION
    INVALID_SESSION_TIMEOUT = 26, Category.INVALID_CONFIGURATION
    INVALID_COMMIT_OFFSET_SIZE = 28, Category.INVALID_CONFIGURATION
    TOPIC_AUTHORIZATION_FAILED = 29, Category.INVALID_CONFIGURATION
    GROUP_AUTHORIZATION_FAILED = 30, Category.INVALID_CONFIGURATION
    CLUSTER_AUTHORIZATION_FAILED = 31, Category.INVALID_CONFIGURATION
    UNSUPPORTED_SASL_MECHANISM = 33, Category.INVALID_CONFIGURATION
    ILLEGAL_SASL_STATE = 34, Category.INVALID_CONFIGURATION
    UNSUPPORTED_VERSION = 35, Category.INVALID_CONFIGURATION
    TOPIC_ALREADY_EXISTS = 36, Category.INVALID_CONFIGURATION
    INVALID_PARTITIONS = 37, Category.INVALID_CONFIGURATION
    INVALID_REPLICATION_FACTOR = 38, Category.INVALID_CONFIGURATION
    INVALID_REPLICA_ASSIGNMENT = 39, Category.INVALID_CONFIGURATION
    INVALID_CONFIG = 40, Category.INVALID_CONFIGURATION
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, Category.INVALID_CONFIGURATION
    POLICY_VIOLATION = 44, Category.INVALID_CONFIGURATION
    INVALID_TRANSACTION_TIMEOUT = 50, Category.INVALID_CONFIGURATION
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, Category.INVALID_CONFIGURATION
    SECURITY_DISABLED = 54, Category.INVALID_CONFIGURATION
    SASL_AUTHENTICATION_FAILED = 58, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_AUTH_DISABLED = 61, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_NOT_FOUND = 62, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, Category.INVALID_CONFIGURATION
    DELEGATION_TOKEN_EXPIRED = 66, Category.INVALID_CONFIGURATION
    INVALID_PRINCIPAL_TYPE = 67, Category.INVALID_CONFIGURATION
    TOPIC_DELETION_DISABLED = 73, Category.INVALID_CONFIGURATION
    UNSUPPORTED_COMPRESSION_TYPE = 76, Category.INVALID_CONFIGURATION
    GROUP_MAX_SIZE_REACHED = 81, Category.INVALID_CONFIGURATION
    INVALID_RECORD = 87, Category.INVALID_CONFIGURATION
    UNACCEPTABLE_CREDENTIAL = 93, Category.INVALID_CONFIGURATION
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, Category.INVALID_CONFIGURATION
    UNSUPPORTED_ASSIGNOR = 112, Category.INVALID_CONFIGURATION
    INVALID_REGULAR_EXPRESSION = 128, Category.INVALID_CONFIGURATION
    LOCAL_NOT_CONFIGURED = -145, Category.INVALID_CONFIGURATION
    LOCAL_INVALID_TYPE = -154, Category.INVALID_CONFIGURATION
    LOCAL_UNSUPPORTED_FEATURE = -165, Category.INVALID_CONFIGURATION
    LOCAL_AUTHENTICATION = -169, Category.INVALID_CONFIGURATION
    LOCAL_NOT_IMPLEMENTED = -170, Category.INVALID_CONFIGURATION
    LOCAL_UNKNOWN_PROTOCOL = -171, Category.INVALID_CONFIGURATION
    LOCAL_SSL = -181, Category.INVALID_CONFIGURATION
    LOCAL_INVALID_ARG = -186, Category.INVALID_CONFIGURATION


_BY_NUMBER = {code.value: code for code in ErrorCode}

_TOO_FEW_REPLICAS = "Fewer replicas are in sync than the topic's min.insync.replicas: start the brokers that are down"
_OTHER_OWNER = (
    "The transaction was open for longer than transaction.timeout.ms and the coordinator has aborted it: raise the "
    "setting. Or another process uses the same transactional id: give each query its own"
)

ADVICE: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "Create the topic, or check its name and that this user has DESCRIBE on it (for a sink: CREATE, if the "
        "brokers create topics)"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "Raise the topic's max.message.bytes and the option kafka.max.request.size, or write smaller records; if the "
        "records are small, lower kafka.batch.size"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The brokers do not allow this topic name: choose another one",
    ErrorCode.ILLEGAL_GENERATION: "The group has a newer generation: the member must rejoin",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "Set kafka.partition.assignment.strategy to one that all members of the group support, or use another group"
    ),
    ErrorCode.INVALID_GROUP_ID: (
        "Choose another kafka.group.id: the brokers do not accept this one, or the group is of another type"
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: "The member's session has expired or it has left the group: the member must rejoin",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "Choose kafka.session.timeout.ms between the brokers' group.min.session.timeout.ms and "
        "group.max.session.timeout.ms; where kafka.group.id is only a label, as in Spark's own Kafka source, set "
        "group.membership=false"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "Give this user the rights that it needs: READ on the topic of a source, and WRITE on the topic of a sink "
        "(kafka-acls.sh --add --allow-principal User:NAME --operation Read --topic TOPIC; for a sink, "
        "--operation Write)"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "Give this user READ on the group "
        "(kafka-acls.sh --add --allow-principal User:NAME --operation Read --group GROUP)"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "For a sink, give this user WRITE on its topic; with brokers before 2.8, IDEMPOTENT_WRITE on the cluster too, "
        "or set kafka.enable.idempotence=false"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "If this lasts, the brokers cannot create __consumer_offsets (for a group) or __transaction_state (for a "
        "transactional id), or the topic has no leader: check offsets.topic.replication.factor and "
        "transaction.state.log.replication.factor, which must not exceed the number of brokers"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Lower kafka.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Give this user WRITE and DESCRIBE on the transactional id, or set commit.transactional (of a sink: "
        "transactional) to false (kafka-acls.sh --add --allow-principal User:NAME --operation Write "
        "--operation Describe --transactional-id PREFIX --resource-pattern-type prefixed; PREFIX is the "
        "group's name, or the sink's transactional.id.prefix)"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Check kafka.security.protocol, kafka.sasl.mechanism and the credentials",
    ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group first",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group has no members and no committed offsets in this cluster: check its name",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "Lower group.members, or raise group.max.size of the brokers",
    ErrorCode.FENCED_INSTANCE_ID: "Another process uses the same group.instance.id: give each query its own",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Stop the members that subscribe to the topic first",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "A transaction over the group's offsets is open. If it stays open for minutes, a broker has lost its "
        "marker: stop the group, run kafkagroup offsets delete, and start again, from the checkpoints"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: _OTHER_OWNER,
    ErrorCode.PRODUCER_FENCED: _OTHER_OWNER,
    ErrorCode.LOCAL_FENCED: (
        "Another process uses the same group.instance.id or transactional id: give each query its own"
    ),
    ErrorCode.LOCAL_AUTHENTICATION: "Check kafka.security.protocol, kafka.sasl.mechanism and the credentials",
    ErrorCode.LOCAL_SSL: "Check kafka.security.protocol and the kafka.ssl.* options",
    ErrorCode.LOCAL_ALL_BROKERS_DOWN: "Check kafka.bootstrap.servers, kafka.security.protocol and the network",
    ErrorCode.LOCAL_UNKNOWN_TOPIC: (
        "Create the topic, or check its name and that this user has DESCRIBE on it (for a sink: CREATE, if the "
        "brokers create topics)"
    ),
    ErrorCode.LOCAL_UNKNOWN_PARTITION: "The topic does not have the partition that the column partition contains",
    ErrorCode.LOCAL_MSG_TIMED_OUT: (
        "The brokers did not acknowledge the record within kafka.delivery.timeout.ms: check that they are running "
        "and that as many replicas as the topic's min.insync.replicas are in sync, or raise the setting"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: _TOO_FEW_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _TOO_FEW_REPLICAS,
    ErrorCode.LOCAL_RESOLVE: "Check the host names in kafka.bootstrap.servers",
}
"""The user's remedy for a code, which `errors.error_for_code` adds to the message. Keep such advice here."""
