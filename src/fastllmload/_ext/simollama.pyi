from fastllmload._ext.simform import Form

class OllamaForm(Form):
    def fill(self, chunk_bytes: int) -> None: ...
