from headrace.testing.recordings import check_recording as check_recording
from headrace.testing.single_operator import Message as Message
from headrace.testing.single_operator import OperatorResult as OperatorResult
from headrace.testing.single_operator import run_operator as run_operator
