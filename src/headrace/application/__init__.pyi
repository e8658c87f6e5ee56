from headrace.application.application import Application as Application
from headrace.application.fragment import Fragment as Fragment
from headrace.application.running import Running as Running
from headrace.operators.feed import Feed as Feed
from headrace.operators.results import Results as Results
