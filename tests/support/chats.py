"""Conversations, and what the scripted engine answers to them."""

from collections.abc import Sequence

from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

USER: Sequence[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}},
}
REASONED = "I think\n</think>\n\nHi there"
CALLED = (
    'So\n</think>\n\nLet me see.\n<tool_call>\n{"name": "weather", "arguments": '
    '{"city": "Bonn"}}\n</tool_call><tool_call>{"name": "weather", "arguments": {}}</tool_call>'
)
