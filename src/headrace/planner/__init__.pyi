from headrace.planner.deciding import Decision as Decision
from headrace.planner.deciding import Figure as Figure
from headrace.planner.deciding import make_plan as make_plan
from headrace.planner.plan import Plan as Plan
from headrace.planner.plan import read_plan as read_plan
from headrace.planner.targets import Target as Target
