"""Flow analysis of mutexes: every path of a function leaves them as its contract says.

A state is the set of mutexes that are locked, each named by the text of the expression that leads
to it (`log.lock`). The analysis follows every branch with every state that can reach it. Code that
locks and unlocks under two conditions of the same meaning is a fault therefore.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from Cython.Compiler import ExprNodes, Nodes, UtilNodes

from tests.support.lock_contracts import CONTRACTS, NO_CONTRACT, Contract
from tests.support.lock_tree import (
    children,
    coercions_of,
    is_object,
    name_of,
    path_of,
    runs_python,
    signature_of,
    without_coercions,
)

State = frozenset[str]
States = frozenset[State]

NEVER: States = frozenset()

#: Modules of the client, whose mutexes protect memory only; nothing does I/O while it has one.
WITH_GIL = "client_"


#: Expressions that evaluate only some of their operands.
BRANCHES = (ExprNodes.BoolBinopNode, ExprNodes.CondExprNode)


class Fault(NamedTuple):
    line: int
    function: str
    text: str


class Return(NamedTuple):
    """A state with which a function returns; whether the result is true, None where unknown."""

    state: State
    line: int
    truth: bool | None


@dataclass
class Exits:
    """States with which a piece of code ends, by the way that it ends."""

    through: States = NEVER
    returned: frozenset[Return] = frozenset()
    broken: States = NEVER
    continued: States = NEVER
    raised: States = NEVER

    def add(self, other: Exits, *ways: str) -> None:
        """Add the states of `other`, of all ways or of these."""
        for way in ways or ("through", "returned", "broken", "continued", "raised"):
            setattr(self, way, getattr(self, way) | getattr(other, way))


def contract_of(call: Any) -> Contract:
    """Return the contract of the function that a call names."""
    entry = getattr(call.function, "entry", None)
    if entry is None or not getattr(entry, "is_cfunction", False):
        return NO_CONTRACT
    return CONTRACTS.get(entry.name) or CONTRACTS.get(name_of(entry)) or NO_CONTRACT


def mutexes_of(states: States) -> list[str]:
    return sorted({mutex for state in states for mutex in state})


def depends_on(mutex: str, target: str) -> bool:
    """Return True if the mutex is another one after an assignment to `target`."""
    names = re.findall(r"(?<![.\w])[A-Za-z_]\w*", mutex)
    return target in names or mutex.startswith(f"{target}.")


@dataclass
class Flow:
    """The analysis of one function."""

    function: Any
    contract: Contract
    with_gil: bool
    faults: set[Fault] = field(default_factory=set)
    raised: States = NEVER  # by the statement at `line`
    line: int = 0

    def fault(self, text: str) -> None:
        self.faults.add(Fault(self.line, name_of(self.function.entry), text))

    # -- expressions

    def call(self, call: Any, contract: Contract, states: States) -> tuple[States, States]:
        """Return the states after a call that locks or unlocks: if it succeeds, if it fails."""
        formals = (formal.name for formal in signature_of(call).args)
        actuals = dict(zip(formals, map(path_of, call.args), strict=False))

        def named_here(mutexes: Iterable[str]) -> State:
            parts = (mutex.partition(".") for mutex in mutexes)
            return frozenset(actuals.get(root, root) + dot + rest for root, dot, rest in parts)

        entered, left = named_here(contract.entered), named_here(contract.left)
        function = call.function
        name = function.attribute if function.is_attribute else function.name
        self.check_call(name, entered, left, states)
        succeeded = frozenset(state - entered | left for state in states)
        return succeeded, states if contract.result else NEVER

    def check_call(self, name: str, entered: State, left: State, states: States) -> None:
        for mutex in sorted(entered | left):
            if "?" in mutex:
                self.fault(f"{name}: give the mutex {mutex} a name")
        waits = self.with_gil and name != "pthread_mutex_trylock"
        for mutex in sorted(left - entered):
            if waits and not name_of(self.function.entry).startswith(WITH_GIL):
                self.fault(f"{name} waits for {mutex} with the GIL")
        for state in states:
            for mutex in sorted(entered - state):
                self.fault(f"{name} needs {mutex}, which is not locked")
            for mutex in sorted((left - entered) & state):
                self.fault(f"{name} locks {mutex}, which is locked already")

    def value(self, node: Any, states: States) -> States:
        """Return the states after an expression whose value decides nothing."""
        if isinstance(node, ExprNodes.CloneNode):
            return states
        if isinstance(node, BRANCHES):
            yes, no = self.condition(node, states)
            return yes | no
        for child in children(node):
            states = self.value(child, states)
        if runs_python(node):
            self.python(states)
        if isinstance(node, ExprNodes.YieldExprNode) and any(states):
            self.fault("yields with a mutex locked")
        contract = contract_of(node) if isinstance(node, ExprNodes.SimpleCallNode) else NO_CONTRACT
        if contract is NO_CONTRACT:
            return states
        succeeded, failed = self.call(node, contract, states)
        return succeeded | failed

    def python(self, states: States) -> None:
        """Note that Python may run: it may raise, or switch to a thread that waits for a mutex."""
        self.raised |= states
        for mutex in mutexes_of(states):
            self.fault(f"runs Python with {mutex} locked")

    def condition(self, node: Any, states: States) -> tuple[States, States]:
        """Return the states where an expression is true, and where it is false."""
        if node is None:  # Cython's `while True`
            return states, NEVER
        if any(map(runs_python, coercions_of(node))):
            self.python(states)
        node = without_coercions(node)
        if isinstance(node, (*BRANCHES, ExprNodes.NotNode)) and runs_python(node):
            self.python(states)
        if isinstance(node, ExprNodes.NotNode):
            yes, no = self.condition(node.operand, states)
            return no, yes
        if isinstance(node, ExprNodes.BoolBinopNode):
            yes, no = self.condition(node.operand1, states)
            if node.operator == "and":
                both, second = self.condition(node.operand2, yes)
                return both, no | second
            second, neither = self.condition(node.operand2, no)
            return yes | second, neither
        if isinstance(node, ExprNodes.CondExprNode):
            yes, no = self.condition(node.condition, states)
            either = self.value(node.true_val, yes) | self.value(node.false_val, no)
            return either, either
        if node.has_constant_result():
            return (states, NEVER) if node.constant_result else (NEVER, states)
        return self.call_condition(node, states)

    def call_condition(self, node: Any, states: States) -> tuple[States, States]:
        """The same of `f(...)`, `f(...) == 0` and `f(...) != 0`, and of what calls nothing."""
        call, result = node, "true"
        if isinstance(node, ExprNodes.PrimaryCmpNode) and node.operator in ("==", "!=") \
                and node.operand2.has_constant_result() \
                and node.operand2.constant_result == 0:  # fmt: skip
            call = without_coercions(node.operand1)
            result = "zero" if node.operator == "==" else "true"
        is_call = isinstance(call, ExprNodes.SimpleCallNode)
        contract = contract_of(call) if is_call else NO_CONTRACT
        if not contract.result:
            after = self.value(node, states)
            return after, after
        for argument in call.args:
            states = self.value(argument, states)
        succeeded, failed = self.call(call, contract, states)
        return (succeeded, failed) if contract.result == result else (failed, succeeded)

    # -- statements

    def block(self, node: Any, states: States) -> Exits:
        """Return the exits of a statement, which may be None."""
        if node is None or not states:
            return Exits(through=states)
        outer, self.raised = self.raised, NEVER
        if not isinstance(node, Nodes.StatListNode):
            self.line = node.pos[1]
        exits = self.statement(node, states)
        exits.raised |= self.raised
        self.raised = outer
        return exits

    def statement(self, node: Any, states: States) -> Exits:
        for kinds, method in STATEMENTS:
            if isinstance(node, kinds):
                return method(self, node, states)
        self.fault(f"the analysis does not know {type(node).__name__}")
        return Exits(through=states)

    def nothing(self, node: Any, states: States) -> Exits:
        return Exits(through=states)

    def sequence(self, node: Any, states: States) -> Exits:
        exits = Exits(through=states)
        for statement in node.stats:
            after = self.block(statement, exits.through)
            exits.through = NEVER
            exits.add(after)
        return exits

    def expressions(self, node: Any, states: States) -> Exits:
        """An assignment, a call, `del` or `assert`."""
        for child in children(node):
            states = self.value(child, states)
        if any(is_object(child) for child in children(node)):
            self.python(states)  # a finalizer of the replaced object
        if hasattr(node, "lhs"):
            self.assign(node.lhs, states)
        return Exits(through=states)

    def assign(self, target: Any, states: States) -> None:
        for mutex in mutexes_of(states):
            if depends_on(mutex, path_of(target)):
                self.fault(f"{path_of(target)} changes while {mutex} is locked")

    def temporary(self, node: Any, states: States) -> Exits:
        """A value that Cython keeps during a statement."""
        if isinstance(node, UtilNodes.LetNode):
            states = self.value(node.temp_expression, states)
        return self.block(node.body, states)

    def branches(self, node: Any, states: States) -> Exits:
        exits = Exits()
        for clause in node.if_clauses:
            yes, states = self.condition(clause.condition, states)
            exits.add(self.block(clause.body, yes))
        exits.add(self.block(node.else_clause, states))
        return exits

    def loop(self, node: Any, states: States) -> Exits:
        """A `while` or a `for`, repeated until no new state reaches its head."""
        exits = Exits()
        is_while = isinstance(node, Nodes.WhileStatNode)
        for child in () if is_while else children(node):
            if isinstance(child, ExprNodes.ExprNode):
                states = self.value(child, states)
        heads, ends = NEVER, NEVER
        while not states <= heads:
            heads |= states
            into, out = self.condition(node.condition, heads) if is_while else (heads, heads)
            if not is_while:
                self.assign(node.target, heads)
            ends |= out
            body = self.block(node.body, into)
            exits.add(body, "returned", "raised")
            exits.through |= body.broken
            states = heads | body.through | body.continued
        exits.add(self.block(node.else_clause, ends))
        return exits

    def gil(self, node: Any, states: States) -> Exits:
        """A `with nogil` or a `with gil`."""
        if node.state == "gil":
            self.python(states)
        outer, self.with_gil = self.with_gil, node.state == "gil"
        exits = self.block(node.body, states)
        self.with_gil = outer
        return exits

    def context(self, node: Any, states: States) -> Exits:
        """A `with` of a Python object."""
        states = self.value(node.manager, states)
        self.python(states)
        return self.block(node.body, states)

    def try_finally(self, node: Any, states: States) -> Exits:
        body = self.block(node.body, states)
        exits = Exits()
        for way in ("through", "broken", "continued", "raised"):
            after = self.block(node.finally_clause, getattr(body, way))
            setattr(exits, way, getattr(exits, way) | after.through)
            exits.add(after, "returned", "broken", "continued", "raised")
        for state, line, truth in body.returned:
            after = self.block(node.finally_clause, frozenset({state}))
            exits.returned |= {Return(each, line, truth) for each in after.through}
            exits.add(after, "returned", "broken", "continued", "raised")
        return exits

    def try_except(self, node: Any, states: States) -> Exits:
        body = self.block(node.body, states)
        exits = Exits()
        exits.add(body, "returned", "broken", "continued", "raised")
        exits.add(self.block(node.else_clause, body.through))
        for clause in node.except_clauses:
            exits.add(self.block(clause.body, body.raised))
            if not clause.pattern:
                exits.raised -= body.raised
        return exits

    def jump(self, node: Any, states: States) -> Exits:
        if isinstance(node, Nodes.BreakStatNode):
            return Exits(broken=states)
        return Exits(continued=states)

    def throw(self, node: Any, states: States) -> Exits:
        for child in children(node):
            states = self.value(child, states)
        return Exits(raised=states)

    # -- ends of the function

    def leave(self, node: Any, states: States) -> Exits:
        line = node.pos[1]
        if node.value is None or not self.contract.result:
            after = states if node.value is None else self.value(node.value, states)
            return Exits(returned=frozenset(Return(state, line, None) for state in after))
        yes, no = self.condition(node.value, states)
        true = {Return(state, line, True) for state in yes}
        return Exits(returned=frozenset(true | {Return(state, line, False) for state in no}))

    def end(self, how: str, state: State, truth: bool | None) -> None:
        """Compare the state at an end of the function with the contract."""
        left = frozenset(self.contract.left)
        if self.contract.result and truth is not (self.contract.result == "true"):
            left = frozenset()
        for mutex in sorted(state - left):
            self.fault(f"{how} with {mutex} locked")
        for mutex in sorted(left - state):
            self.fault(f"{how} with {mutex} unlocked")

    def run(self) -> set[Fault]:
        entered = frozenset(self.contract.entered)
        exits = self.block(self.function.body, frozenset({entered}))
        for state in exits.through:
            self.end("ends", state, False)
        for state, self.line, truth in exits.returned:
            self.end("returns", state, truth)
        self.line = self.function.pos[1]
        for state in exits.raised:
            for mutex in sorted(state ^ entered):
                self.fault(f"may raise with {mutex} {'locked' if mutex in state else 'unlocked'}")
        return self.faults


STATEMENTS = (
    (Nodes.StatListNode, Flow.sequence),
    ((UtilNodes.LetNode, UtilNodes.TempsBlockNode), Flow.temporary),
    (Nodes.IfStatNode, Flow.branches),
    ((Nodes.WhileStatNode, Nodes.ForInStatNode, Nodes.ForFromStatNode), Flow.loop),
    (Nodes.GILStatNode, Flow.gil),
    (Nodes.TryFinallyStatNode, Flow.try_finally),
    (Nodes.TryExceptStatNode, Flow.try_except),
    (Nodes.WithStatNode, Flow.context),
    (Nodes.ReturnStatNode, Flow.leave),
    ((Nodes.BreakStatNode, Nodes.ContinueStatNode), Flow.jump),
    ((Nodes.RaiseStatNode, Nodes.ReraiseStatNode), Flow.throw),
    ((Nodes.ExprStatNode, Nodes.AssignmentNode, Nodes.DelStatNode, Nodes.AssertStatNode,
      Nodes.DictIterationNextNode, Nodes.SetIterationNextNode), Flow.expressions),
    ((Nodes.PassStatNode, Nodes.CVarDefNode, Nodes.GlobalNode, Nodes.FuncDefNode,
      Nodes.CriticalSectionExitNode), Flow.nothing),
)  # fmt: skip


def faults_of(function: Any) -> set[Fault]:
    """Return what is wrong with the mutexes of one function."""
    contract = CONTRACTS.get(name_of(function.entry), NO_CONTRACT)
    with_gil = not getattr(function.entry.type, "nogil", False)
    return Flow(function, contract, with_gil).run()
