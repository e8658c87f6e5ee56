from headrace.topics.discovery import Discovery as Discovery
from headrace.topics.discovery import Publisher as Publisher
from headrace.topics.folder import TopicFolder as TopicFolder
from headrace.topics.publication import Publication as Publication
from headrace.topics.publication import Subscriber as Subscriber
from headrace.topics.subscription import Message as Message
from headrace.topics.subscription import Subscription as Subscription
